import { basename } from 'node:path/posix';
import { isLocalImage } from './image.ts';
import { listCommands } from './shell.ts';

/** Programs that run the program after their own options. */
const wrappers = new Set([
  'sudo',
  'env',
  'nice',
  'ionice',
  'nohup',
  'chroot',
  'nsenter',
  'systemd-run',
  'timeout',
  'stdbuf',
  'setsid',
  'retry',
  'unshare',
  'runuser',
  'xargs',
  'time',
  'exec',
  'command',
]);
const keywords = new Set(['if', 'then', 'elif', 'else', 'while', 'until', 'do', '!', '{', 'time', 'exec', 'command']);
const shells = new Set(['sh', 'bash', 'dash', 'zsh', 'ksh', 'ash']);

/** Whether a call of a program contacts a registry by itself, by the program’s name and the words after it. */
const contacts: Readonly<Record<string, (words: readonly string[]) => boolean>> = {
  skopeo: (words) =>
    ['inspect', 'copy', 'sync', 'list-tags', 'delete'].includes(argumentsOf(words)[0] ?? '') &&
    (words.some((word) => word.startsWith('docker://') && !isLocalImage(word)) ||
      /(?:^| )(?:--src|-s)[ =]docker/.test(words.join(' ')) ||
      argumentsOf(words)
        .slice(1)
        .some((word) => word.startsWith('$'))),
  podman: callsContainerEngine,
  docker: callsContainerEngine,
  nerdctl: callsContainerEngine,
  buildah: (words) =>
    (['pull', 'push'].includes(argumentsOf(words)[0] ?? '') && isForRegistry(words, ['pull', 'push'])) ||
    (['bud', 'build', 'from'].includes(argumentsOf(words)[0] ?? '') && buildPulls(words)),
  crictl: (words) => argumentsOf(words).includes('pull') && isForRegistry(words, ['pull']),
  ctr: (words) => /(?:^| )(?:images?|i) (?:pull|fetch) /.test(`${argumentsOf(words).join(' ')} `),
  oras: (words) => callsRegistryClient(words, ['pull', 'push', 'cp', 'copy', 'attach', 'discover', 'resolve']),
  crane: (words) => callsRegistryClient(words, ['pull', 'push', 'cp', 'copy', 'digest', 'manifest', 'config', 'ls']),
  cosign: (words) => callsRegistryClient(words, ['verify', 'verify-attestation', 'download', 'copy', 'tree']),
  helm: (words) => words.some((word) => word.startsWith('oci://') && !isLocalImage(word.replace(/^oci:/, 'docker:'))),
  oc: (words) => callsOc(argumentsOf(words)),
  'rpm-ostree': (words) =>
    argumentsOf(words)[0] === 'rebase' &&
    words.some((word) => /^ostree-[\w-]+:(?:registry:|docker:\/\/)|^ostree-(?:unverified|remote)-registry:/.test(word)),
  bootc: (words) => {
    const [verb] = argumentsOf(words);
    if (verb === 'upgrade' || verb === 'update') return true;
    return verb === 'switch' && !/ --transport[ =](?!registry)/.test(words.join(' '));
  },
  curl: callsRegistryApi,
  wget: callsRegistryApi,
};

/**
 * Returns the commands that contact a registry by themselves, in the order of the script. A pull is left out if the
 * script asks before it whether the same image is present.
 */
export function registryCommandsIn(commands: readonly (readonly string[])[]): string[][] {
  const calls = commands.flatMap((words) => callsOf(words, 0));
  const checkedImages = new Set(calls.flatMap(imagesAskedFor));
  return calls.filter(
    ([program = '', ...words]) =>
      contacts[program]?.(words) === true &&
      !(words.includes('pull') && argumentsOf(words).some((word) => checkedImages.has(word))),
  );
}

/**
 * The calls of known programs in a command: without keywords, assignments and wrappers, and the commands that a shell
 * is given.
 */
function callsOf(words: readonly string[], depth: number): string[][] {
  const start = words.findIndex((word) => !keywords.has(word) && !/^\w+\+?=/.test(word));
  const rest = start < 0 ? [] : words.slice(start);
  const program = basename(rest[0] ?? '');
  if (program === 'eval' || (shells.has(program) && rest.some((word) => /^-\w*c$/.test(word)))) {
    const script =
      program === 'eval' ? rest.slice(1).join(' ') : rest[rest.findIndex((word) => /^-\w*c$/.test(word)) + 1];
    return depth > 5 ? [] : listCommands(script ?? '').flatMap((inner) => callsOf(inner, depth + 1));
  }
  if (program in contacts) return [[program, ...rest.slice(1)]];
  if (!wrappers.has(program) || depth > 5) return [];
  const at = rest.findIndex((word, index) => index > 0 && (basename(word) in contacts || shells.has(basename(word))));
  return at < 0 ? [] : callsOf(rest.slice(at), depth + 1);
}

function imagesAskedFor([program, ...words]: readonly string[]): string[] {
  const [first, second, ...others] = argumentsOf(words);
  if (program === 'podman' && first === 'image' && (second === 'exists' || second === 'inspect')) return others;
  if (program === 'podman' && first === 'inspect') return [second ?? '', ...others];
  return program === 'crictl' && first === 'inspecti' ? [second ?? '', ...others] : [];
}

function argumentsOf(words: readonly string[]): string[] {
  return words.filter((word) => !word.startsWith('-'));
}

function callsRegistryClient(words: readonly string[], verbs: readonly string[]): boolean {
  return verbs.includes(argumentsOf(words)[0] ?? '') && isForRegistry(words, verbs);
}

function callsContainerEngine(words: readonly string[]): boolean {
  const line = ` ${words.join(' ')} `;
  const [first, second] = argumentsOf(words);
  const verbs = ['pull', 'push', 'search', 'run', 'create', 'build', 'auto-update', 'exec', 'image', 'artifact'];
  const verb = words.find((word) => verbs.includes(word));
  if (verb === 'run' || verb === 'create') return / --pull[ =](?:always|newer) /.test(line);
  if (verb === 'auto-update' || verb === 'search') return true;
  if (first === 'compose') return verb === 'pull';
  if (verb === 'build' || (verb === 'image' && second === 'build')) return buildPulls(words);
  if (verb === 'pull' || verb === 'push' || (verb === first && second === 'pull'))
    return !/ --policy[ =](?:missing|never|ifnotpresent) /.test(line) && isForRegistry(words, ['pull', 'push']);
  return false;
}

/** Whether a build pulls its base image though it is present. The option takes its value after `=` only. */
function buildPulls(words: readonly string[]): boolean {
  return words.some((word) => /^--pull(?:=(?:always|newer|true)|-always)?$/.test(word));
}

/** Whether a verb is followed by an image that is not on this machine. */
function isForRegistry(words: readonly string[], verbs: readonly string[]): boolean {
  const images = argumentsOf(words.slice(words.findIndex((word) => verbs.includes(word)) + 1));
  return images.length > 0 && !images.some(isLocalImage);
}

function callsOc(words: readonly string[]): boolean {
  const isCall =
    /^(?:image (?:mirror|extract|info|append)|adm release (?:info|extract|mirror|new)|adm catalog mirror|import-image)(?: |$)/;
  const start = words.findIndex((word) => ['image', 'adm', 'import-image'].includes(word));
  if (start < 0 || !isCall.test(words.slice(start).join(' '))) return false;
  return !words.slice(start).some(isLocalImage);
}

function callsRegistryApi(words: readonly string[]): boolean {
  return words.some((word) => /^https?:\/\/(?!localhost|127\.|\[::1\])[^/]+\/v2\//.test(word));
}
