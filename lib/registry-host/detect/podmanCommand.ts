import type { PlacedSetting, Word } from './units.ts';

/** An option of a podman command. */
export interface PodmanOption {
  /** The long name: `-v` is `volume`. */
  readonly name: string;
  /** The value; undefined for a switch. */
  readonly value: string | undefined;
  /** The one or two words of the option. */
  readonly words: readonly Word[];
}

/** A `podman run` or `podman pod create` in a unit. */
export interface PodmanCommand {
  readonly setting: PlacedSetting;
  readonly options: readonly PodmanOption[];
  /** The image; undefined for a pod, whose image is in the option `infra-image`. */
  readonly image: Word | undefined;
  readonly command: readonly Word[];
}

const longNames: Readonly<Record<string, string>> = {
  a: 'attach',
  c: 'cpu-shares',
  d: 'detach',
  e: 'env',
  h: 'hostname',
  i: 'interactive',
  l: 'label',
  m: 'memory',
  p: 'publish',
  P: 'publish-all',
  q: 'quiet',
  t: 'tty',
  u: 'user',
  v: 'volume',
  w: 'workdir',
};

/** Options without a value, except in the form `--name=value`. Every other option takes the next word. */
const switches = new Set([
  'detach',
  'interactive',
  'tty',
  'publish-all',
  'quiet',
  'replace',
  'rm',
  'rmi',
  'privileged',
  'read-only',
  'read-only-tmpfs',
  'init',
  'no-hosts',
  'no-hostname',
  'tls-verify',
  'oom-kill-disable',
  'http-proxy',
  'infra',
  'sig-proxy',
  'env-host',
  'no-healthcheck',
  'passwd',
  'disable-content-trust',
  'help',
]);

/** Parses an `ExecStart=` as `podman run` or `podman pod create`; undefined if it is neither. */
export function parsePodmanCommand(setting: PlacedSetting): PodmanCommand | undefined {
  const verb = setting.words.findIndex(({ text }, index) => index > 0 && (text === 'run' || text === 'create'));
  if (!/^[-@:+!|]*\S*podman$/.test(setting.words[0]?.text ?? '') || verb < 0) return undefined;
  const isPod = setting.words[verb]?.text === 'create';
  const options: PodmanOption[] = [];
  let index = verb + 1;
  for (;;) {
    const word = setting.words[index];
    if (!word?.text.startsWith('-') || word.text === '--') break;
    const option = readOption(word, setting.words[index + 1]);
    options.push(...option);
    index += option.some(({ words }) => words.length === 2) ? 2 : 1;
  }
  if (setting.words[index]?.text === '--') index += 1;
  const [image, ...command] = isPod ? [] : setting.words.slice(index);
  return { setting, options, image, command };
}

/** Returns the values of an option with their words. */
export function valuesOf(command: PodmanCommand | undefined, name: string): { value: string; word: Word }[] {
  return (command?.options ?? []).flatMap(({ name: optionName, value, words }) => {
    const word = words.at(-1);
    return optionName === name && value !== undefined && word ? [{ value, word }] : [];
  });
}

/**
 * Returns how the port of Quay is published (`--publish 8443:8443`); the first one counts. Without TLS, the port of the
 * container is 8080.
 */
export function publishesOf(command: PodmanCommand | undefined, servesTls: boolean): { value: string; word: Word }[] {
  const pattern = servesTls ? /:8443(?:\/tcp)?$/ : /:8080(?:\/tcp)?$/;
  return valuesOf(command, 'publish').filter(({ value }) => pattern.test(value));
}

/** Parses an option. One word may be several switches (`-it`), and the last letter may take a value. */
function readOption(word: Word, next: Word | undefined): PodmanOption[] {
  const { text } = word;
  if (text.startsWith('--')) {
    const [, name = '', value] = /^--([^=]*)(?:=(.*))?$/s.exec(text) ?? [];
    if (value !== undefined || switches.has(name) || !next) return [{ name, value, words: [word] }];
    return [{ name, value: next.text, words: [word, next] }];
  }
  const options: PodmanOption[] = [];
  for (let index = 1; index < text.length; index += 1) {
    const name = longNames[text[index] ?? ''] ?? text[index] ?? '';
    if (switches.has(name)) {
      options.push({ name, value: undefined, words: [word] });
      continue;
    }
    const attached = text.slice(index + 1).replace(/^=/, '');
    if (attached !== '' || !next) return [...options, { name, value: attached, words: [word] }];
    return [...options, { name, value: next.text, words: [word, next] }];
  }
  return options;
}
