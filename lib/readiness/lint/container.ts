import { isUtf8 } from 'node:buffer';
import { gunzipSync } from 'node:zlib';
import { fieldsAt, fieldsOf, isFields, listOf, textOf, textsOf, type Fields } from '#fields';
import { isByDigest } from './image.ts';

/** The fields of a pod spec that list containers, each with the word for one of its containers. */
export const containerLists = [
  ['containers', 'container'],
  ['initContainers', 'init container'],
  ['ephemeralContainers', 'ephemeral container'],
] as const;

/**
 * A container of a pod, from any of its lists, or a volume that an image is mounted as (Kubernetes 1.31). KubeVirt
 * makes a container of a container disk.
 */
export interface Container {
  readonly kind: (typeof containerLists)[number][1] | 'image volume' | 'container disk';
  readonly list: (typeof containerLists)[number][0] | 'volumes';
  readonly name: string;
  readonly image: string;
  /** The paths of the fields with the image and the pull policy. */
  readonly paths: { readonly image: string; readonly policy: string };
  /** The pull policy of the manifest; undefined if it has none. */
  readonly statedPolicy: string | undefined;
  /** The pull policy; if the manifest has none, the default of the API server. */
  readonly policy: string;
  /** As the manifest has it. */
  readonly fields: Fields;
}

const containerPaths = { image: 'image', policy: 'imagePullPolicy' };
const volumePaths = { image: 'image.reference', policy: 'image.pullPolicy' };
const diskPaths = { image: 'containerDisk.image', policy: 'containerDisk.imagePullPolicy' };

/**
 * Reads the containers of all lists of a pod’s spec, and its image volumes; of a virtual machine, its container disks.
 */
export function readContainers(spec: Fields): Container[] {
  const containers = containerLists.flatMap(([list, kind]) =>
    listOf(spec[list]).map((fields): Container => {
      const { image, imagePullPolicy } = fields;
      return { kind, list, paths: containerPaths, ...readImage(fields, image, imagePullPolicy) };
    }),
  );
  const volumes = listOf(spec['volumes']).flatMap((fields): Container[] => {
    if (isFields(fields['containerDisk'])) {
      const { image, imagePullPolicy } = fields['containerDisk'];
      const disk = { kind: 'container disk', list: 'volumes', paths: diskPaths } as const;
      return [{ ...disk, ...readImage(fields, image, imagePullPolicy) }];
    }
    if (!isFields(fields['image'])) return [];
    const { reference, pullPolicy } = fields['image'];
    const own = { kind: 'image volume', list: 'volumes', paths: volumePaths } as const;
    return [{ ...own, ...readImage(fields, reference, pullPolicy) }];
  });
  return [...containers, ...volumes];
}

function readImage(fields: Fields, named: unknown, policed: unknown) {
  const image = textOf(named) ?? '';
  const statedPolicy = textOf(policed);
  return { name: String(fields['name']), image, statedPolicy, policy: statedPolicy ?? defaultPolicy(image), fields };
}

/** The command lines of a container, by the field that has each: its own, and those of its hooks and probes. */
export function commandLinesOf({ fields }: Container): Map<string, string[]> {
  const { command, args, lifecycle } = fields;
  const handlers = [
    ...['postStart', 'preStop'].map((name) => [`lifecycle.${name}`, fieldsOf(lifecycle)[name]] as const),
    ...['livenessProbe', 'readinessProbe', 'startupProbe'].map((name) => [name, fields[name]] as const),
  ];
  const lines = new Map([
    [command === undefined ? 'args' : 'command', [...textsOf(command), ...textsOf(args)]],
    ...handlers.map(
      ([name, handler]) => [`${name}.exec.command`, textsOf(fieldsAt(handler, 'exec')['command'])] as const,
    ),
  ]);
  return new Map([...lines].filter(([, words]) => words.length > 0));
}

/** Describes containers as the subject of a problem: `container a pulls …`, `containers a, b pull …`. */
export function describeContainers(containers: readonly Container[], problem: string): string {
  const [first, second] = containers;
  if (first && !second) return `${first.kind} ${first.name} ${problem}`;
  const kinds = new Set(containers.map(({ kind }) => kind));
  const names = containers.map(({ name, kind }) => (kinds.size === 1 ? name : `${name} (${kind})`));
  return (
    `${kinds.size === 1 && first ? first.kind : 'container'}s ` +
    `${names.join(', ')} ${problem.replace(/^(\w+)s\b/, '$1')}`
  );
}

function defaultPolicy(image: string): string {
  const last = image.slice(image.lastIndexOf('/') + 1);
  const isLatest = !isByDigest(image) && (!last.includes(':') || last.endsWith(':latest'));
  return isLatest ? 'Always' : 'IfNotPresent';
}

/** Of one file or value when it is unpacked, in bytes. Files of machine configurations have some kilobytes. */
const largest = 16 * 1024 * 1024;

/**
 * Returns the text in a data URL, unpacked if it is gzip; undefined for another text, and for content that is no text.
 * Throws RangeError above 16 MiB.
 */
export function readDataUrl(source: string): string | undefined {
  const [, encoding, data = ''] = /^data:[^,]{0,200}?(;base64)?,(.*)$/s.exec(source) ?? [];
  if (!source.startsWith('data:')) return undefined;
  return encoding === undefined ? readBytes(Buffer.from(decodePercent(data), 'latin1')) : readBase64(data);
}

/**
 * Returns the text in a base64 value, unpacked if it is gzip; undefined for content that is no text. Throws RangeError
 * above 16 MiB.
 */
export function readBase64(data: string): string | undefined {
  return readBytes(Buffer.from(data, 'base64'));
}

function readBytes(bytes: Buffer): string | undefined {
  const content = bytes[0] === 0x1f && bytes[1] === 0x8b ? unpack(bytes) : bytes;
  return content && isUtf8(content) ? content.toString('utf8') : undefined;
}

function unpack(bytes: Buffer): Buffer | undefined {
  try {
    return gunzipSync(bytes, { maxOutputLength: largest });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ERR_BUFFER_TOO_LARGE') return undefined;
    throw new RangeError('it has more than 16 MiB when it is unpacked', { cause });
  }
}

/** Decodes each `%41` to a byte, as one character each; a malformed one stays. */
function decodePercent(text: string): string {
  return Buffer.from(text, 'utf8')
    .toString('latin1')
    .replace(/%([0-9a-fA-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}
