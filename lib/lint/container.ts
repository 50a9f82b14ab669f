import { fieldsOf, listOf, textOf, textsOf, type Fields } from '../fields.ts';
import { isByDigest } from './image.ts';

/** The lists of a pod with containers, and the word for a container of each. */
export const containerLists = [
  ['containers', 'container'],
  ['initContainers', 'init container'],
  ['ephemeralContainers', 'ephemeral container'],
] as const;

/** A container of a pod, from any of its lists. */
export interface Container {
  readonly kind: (typeof containerLists)[number][1];
  readonly list: (typeof containerLists)[number][0];
  readonly name: string;
  readonly image: string;
  /** The pull policy of the manifest; undefined if it has none. */
  readonly statedPolicy: string | undefined;
  /** The pull policy; if the manifest has none, the default of the API server. */
  readonly policy: string;
  /** As the manifest has it. */
  readonly fields: Fields;
}

/** Reads the containers of all lists of a pod’s spec. */
export function readContainers(spec: Fields): Container[] {
  return containerLists.flatMap(([list, kind]) =>
    listOf(spec[list]).map((fields): Container => {
      const image = textOf(fields['image']) ?? '';
      const statedPolicy = textOf(fields['imagePullPolicy']);
      const policy = statedPolicy ?? defaultPolicy(image);
      return { kind, list, name: String(fields['name']), image, statedPolicy, policy, fields };
    }),
  );
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
      ([name, handler]) => [`${name}.exec.command`, textsOf(fieldsOf(fieldsOf(handler)['exec'])['command'])] as const,
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
  return `${kinds.size === 1 && first ? first.kind : 'container'}s ${names.join(', ')} ${problem.replace(/^(\w+)s\b/, '$1')}`;
}

function defaultPolicy(image: string): string {
  const last = image.slice(image.lastIndexOf('/') + 1);
  const isLatest = !isByDigest(image) && (!last.includes(':') || last.endsWith(':latest'));
  return isLatest ? 'Always' : 'IfNotPresent';
}
