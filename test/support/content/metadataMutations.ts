import type { BundleMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { digestIn } from '../../../lib/content/oci/reference.ts';
import { isFields } from '../../../lib/fields.ts';
import { makeRandom } from '../archive/tarValues.ts';

interface Place {
  readonly parent: Record<string, unknown>;
  readonly key: string;
}

/** Values that take the place of others. */
// oxfmt-ignore
const values: readonly unknown[] = [
  null, true, 0, 1, 2, -1, 1.5, 9e15, '', 'x', '4.12.4', '99.0.0', 's390x', 'Release', [], {}, [[]], ['4.11.1'],
  `quay.io/a/b@sha256:${'a'.repeat(64)}`, `sha256:${'b'.repeat(64)}`, [`evil.example.com/a@sha256:${'c'.repeat(64)}`],
  [{ name: 'SlowDisks', message: 'x', url: '' }], [{ digest: `sha256:${'d'.repeat(64)}`, size: 1 }], { etcd: 'x' },
  [{ name: 'x.tar.001', size: 512 }], [{ fingerprint: 'AB', signer: 'Red Hat' }],
];
const names = [
  'Release',
  'release',
  'Version',
  'version',
  '__proto__',
  'constructor',
  'toString',
  'extraImages',
  'risks',
  'releases',
  'artifacts',
  'volumes',
  'base',
  'tool',
  'mediaType',
  'size',
  '',
  '0',
  'digest',
];

/** Mutates metadata.json: its bytes, its spelling, and its values. The same seed gives the same mutations. */
export class MetadataMutations {
  /** What the last mutation did. */
  described = '';
  readonly #random: (limit: number) => number;

  constructor(seed: number) {
    this.#random = makeRandom(seed);
  }

  /** Returns changed bytes: two thirds have changed values in the form of `create`, or nearly so. */
  mutate(bytes: Buffer): Buffer {
    const kind = this.#random(9);
    if (kind === 0) return this.#changeByte(bytes);
    if (kind === 1) return this.#changeLine(bytes);
    if (kind === 2) return this.#replaceEverywhere(bytes);
    const value = JSON.parse(bytes.toString()) as Record<string, unknown>;
    this.described = '';
    for (let left = this.#pick([1, 1, 1, 2, 3]); left > 0; left -= 1) this.#changeValue(value);
    return Buffer.from(`${JSON.stringify(value, null, 2)}\n`);
  }

  #changeByte(bytes: Buffer): Buffer {
    const at = this.#random(bytes.length);
    const how = this.#random(3);
    const byte = this.#pick([...Buffer.from('0123456789abcdef"{}[],: \n\\-+eE.\u0000é')]);
    this.described = `byte ${at}, ${['changed', 'inserted', 'removed'][how] ?? ''}`;
    return Buffer.concat([
      bytes.subarray(0, at),
      how === 2 ? Buffer.alloc(0) : Buffer.from([byte]),
      bytes.subarray(how === 1 ? at : at + 1),
    ]);
  }

  /** Repeats, moves, removes or respells a line. */
  #changeLine(bytes: Buffer): Buffer {
    const lines = bytes.toString().split('\n');
    const [at, to] = [this.#random(lines.length), this.#random(lines.length)];
    const line = lines[at] ?? '';
    const how = this.#pick(['repeat', 'move', 'remove', 'case', 'escape', 'number', 'space']);
    this.described = `line ${at}: ${how} ${to}`;
    if (how === 'repeat') lines.splice(to, 0, line);
    if (how === 'move') lines.splice(to, 0, ...lines.splice(at, 1));
    if (how === 'remove') lines.splice(at, 1);
    if (how === 'case') lines[at] = line.replace(/"([a-z])/, (_, letter: string) => `"${letter.toUpperCase()}`);
    if (how === 'escape') lines[at] = line.replace(/[a-z/]/, (each) => `\\u00${each.charCodeAt(0).toString(16)}`);
    if (how === 'number') lines[at] = line.replace(/(\d+)(,?)$/, this.#pick(['$1.0$2', '$1e0$2', '0$1$2', '-$1$2']));
    if (how === 'space') lines[at] = `${line} `;
    return Buffer.from(lines.join('\n'));
  }

  /** Changes a text in all places, so that no field contradicts another. */
  #replaceEverywhere(bytes: Buffer): Buffer {
    const text = bytes.toString();
    const words = text.match(/[0-9a-z][0-9a-z.:/_-]{2,}/g) ?? [];
    const word = this.#pick(words);
    const other = this.#pick([this.#pick(words), `${word}0`, word.slice(0, -1), this.#misspell(word)]);
    this.described = `${word} everywhere: ${other}`;
    return Buffer.from(text.replaceAll(word, other));
  }

  #changeValue(root: Record<string, unknown>): void {
    const all = placesIn(root);
    const { parent, key } = this.#pick(all);
    const how = this.#pick(['set', 'take', 'spell', 'spell', 'spell', 'remove', 'repeat', 'swap', 'add']);
    this.described += `${how} ${key}; `;
    const other = this.#pick(all);
    const before = parent[key];
    if (how === 'set') parent[key] = structuredClone(this.#pick(values));
    if (how === 'take') parent[key] = structuredClone(other.parent[other.key]);
    if (how === 'spell') parent[key] = this.#respell(before);
    if (how === 'add' && !Array.isArray(parent)) parent[this.#pick(names)] = structuredClone(this.#pick(values));
    if (how === 'remove' && Array.isArray(parent)) parent.splice(Number(key), 1);
    else if (how === 'remove') Reflect.deleteProperty(parent, key);
    if (how === 'repeat' && Array.isArray(parent)) parent.splice(this.#random(parent.length + 1), 0, before);
    if (how === 'swap') {
      const siblings = Object.keys(parent);
      const sibling = this.#pick(siblings);
      [parent[key], parent[sibling]] = [parent[sibling], parent[key]];
    }
  }

  #respell(value: unknown): unknown {
    if (typeof value === 'number') return value + this.#pick([1, -1, 512, -512, 1000]);
    return typeof value === 'string' ? this.#misspell(value) : value;
  }

  #misspell(word: string): string {
    const at = this.#random(word.length);
    const letter = this.#pick(Array.from('0123456789abcdefxyz'));
    return word.slice(0, at) + letter + word.slice(at + 1);
  }

  #pick<T>(from: readonly T[]): T {
    return from[this.#random(from.length)] as T;
  }
}

function placesIn(parent: Record<string, unknown>): Place[] {
  return Object.entries(parent).flatMap(([key, value]) => [
    { parent, key },
    ...(typeof value === 'object' && value !== null ? placesIn(value as Record<string, unknown>) : []),
  ]);
}

/**
 * Lists the values of metadata.json with their paths, and the paths as docs/trust.md has them. The order of lists and
 * of keys means nothing, except that of releases, a release is what its digest says, and `extraImages` alone lists the
 * extra images.
 */
export function listValues(metadata: BundleMetadata): { path: string; kind: string; value: unknown }[] {
  const releases = [metadata, ...(metadata.releases ?? [])].map(({ release }) => release);
  const images = metadata.images.filter((image) => !metadata.extraImages.includes(image));
  const text = releases.reduce(
    (words, release) => words.replaceAll(`"${release}"`, `"${digestIn(release)}"`),
    JSON.stringify({ ...metadata, images }),
  );
  return valuesIn(JSON.parse(text), '', '');
}

const mappings = ['components', 'releases[].components', 'signatures', 'base.images'];

function valuesIn(value: unknown, path: string, kind: string): { path: string; kind: string; value: unknown }[] {
  if (Array.isArray(value)) {
    const sorted = kind === 'releases' ? value : value.toSorted((a, b) => (key(a) < key(b) ? -1 : 1));
    return sorted.flatMap((each, index) => valuesIn(each, `${path}[${index}]`, `${kind}[]`));
  }
  if (!isFields(value)) return [{ path, kind, value }];
  const dot = path === '' ? '' : '.';
  return Object.keys(value)
    .sort()
    .flatMap((name) => valuesIn(value[name], path + dot + name, kind + dot + (mappings.includes(kind) ? '*' : name)));
}

function key(value: unknown): string {
  return JSON.stringify(value);
}
