import { isFile, readLayer, type EntryContent, type LayerEntry } from '#content/archive';
import { readDocuments } from '#content/files';
import { type Descriptor, type Manifest, parseJson } from '#content/oci';
import type { ContentSource } from '#content/store';
import type { Context } from '#context';
import { PluginError, messageOf } from '#errors';
import { fieldsOf, isFields, type Fields } from '#fields';

/**
 * The files of a payload's `release-manifests` folder by their names, in the order of the archive, from the top layer.
 */
export type PayloadFiles = ReadonlyMap<string, Buffer>;

const folder = /^(?:\.?\/)*release-manifests\/([^/]+)$/;
const namePattern = /^(?:image-references|release-metadata)$|\.(?:ya?ml|json)$/;

// Real sizes: image-references 120 KB, the largest manifest below 1 MB, all manifests 10 MB in a thousand files. They
// are in the last layer. All layers together have 200 MB, and 600 MB unpacked.
const fileLimit = 16 * 1024 * 1024;
const totalLimit = 128 * 1024 * 1024;
/** For all layers of a payload together. A payload may be read before its signature is judged. */
const payloadLimits = { packed: 512 * 1024 * 1024, unpacked: 1024 * 1024 * 1024, headers: 200_000 };

/**
 * Reads the metadata and the manifests of a release payload, from the last layer down to the layer with
 * `image-references`. Uses a layer only after its digest is verified. Throws `invalid-release`, `too-large` (512 MiB of
 * layers, 1 GiB of unpacked bytes) and the errors of the source.
 */
export async function readPayloadFiles(
  source: ContentSource,
  manifest: Manifest,
  context: Context,
): Promise<PayloadFiles> {
  const files = new Map<string, Buffer>();
  const remaining = { ...payloadLimits };
  for (const layer of manifest.layers.toReversed()) {
    context.log('debug', `looking for release-manifests in ${layer.digest}`);
    const read = await readManifestFiles(source, layer, remaining, context);
    remaining.packed -= layer.size;
    remaining.unpacked -= read.unpacked;
    for (const [name, content] of read.files) {
      if (!files.has(name)) files.set(name, content);
    }
    if (files.has('image-references')) return files;
  }
  throw new PluginError('invalid-release', `the image in ${source.name} has no release-manifests/image-references`, {
    hint: 'It is an image, but not a release payload.',
  });
}

async function readManifestFiles(
  source: ContentSource,
  layer: Descriptor,
  remaining: typeof payloadLimits,
  context: Context,
): Promise<{ readonly files: ReadonlyMap<string, Buffer>; readonly unpacked: number }> {
  const files = new Map<string, Buffer>();
  let total = 0;
  const visit = (entry: LayerEntry): EntryContent | undefined => {
    const name = folder.exec(entry.path)?.[1];
    if (name === undefined || !namePattern.test(name) || !isFile(entry)) return undefined;
    total += entry.size;
    if (entry.size > fileLimit || total > totalLimit) {
      const where = `layer ${layer.digest} in ${source.name}`;
      throw new PluginError('too-large', `${name} in ${where} is too large for a file of a release payload`);
    }
    const chunks: Buffer[] = [];
    return { write: (chunk) => chunks.push(chunk), end: () => files.set(name, Buffer.concat(chunks)) };
  };
  const limits = { ...remaining, of: 'a release payload', code: 'invalid-release' } as const;
  return { files, unpacked: await readLayer(source, layer, limits, context, visit) };
}

/** An object of a release, and the name of its file. */
interface PayloadObject {
  readonly file: string;
  readonly object: Fields;
}

// Payloads are read before their signature is checked. The largest manifest of a real one has 100,000 tokens, and all
// documents that are parsed here have 50,000.
const limits = { length: 16 * 1024 * 1024, tokens: 250_000, all: 500_000 };

/**
 * Reads the objects in the manifests of a payload that contain a word, in any form of YAML or JSON, also in a List.
 * Definitions (CustomResourceDefinition) are read only if the word is in `metadata.name`: they are most of a payload.
 * Skips a file that cannot be read or exceeds the limits, with a warning.
 */
export function readPayloadObjects(files: PayloadFiles, word: string, context: Context): PayloadObject[] {
  const spelling = spellingOf(word);
  let remainingTokens = limits.all;
  return [...files].flatMap(([file, content]) => {
    if (!content.includes(word) && !content.includes('\\') && !content.includes(0)) return [];
    const text = content.toString('utf8');
    if (!spelling.test(text) && !text.includes('\0')) return [];
    try {
      const { values, tokens } = parse(text, spelling, remainingTokens);
      remainingTokens -= tokens;
      return values.flatMap(listObjects).map((object) => ({ file, object }));
    } catch (error) {
      context.log('warn', `${file} of the release payload is skipped: ${messageOf(error)}`);
      return [];
    }
  });
}

/**
 * Returns the pattern of all ways in which a double-quoted scalar or JSON spells a word. Only `\x`, `\u`, `\U` stand
 * for letters there, and `\` before a line break continues a word on the next line.
 */
function spellingOf(word: string): RegExp {
  const letters = Array.from(word, (letter) => {
    const hex = letter.charCodeAt(0).toString(16).padStart(2, '0');
    const digits = hex.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);
    return `(?:${letter.replace(/[.-]/, '\\$&')}|\\\\(?:x|u00|U000000)${digits})`;
  });
  return new RegExp(letters.join('(?:\\\\[\\r\\n]\\s*)*'));
}

function parse(text: string, spelling: RegExp, budget: number): { values: unknown[]; tokens: number } {
  if (text.includes('\0')) throw new SyntaxError('it is not UTF-8');
  if (text.length > limits.length) throw new RangeError(`it has more than ${limits.length} characters`);
  if (/^\s*\{/.test(text)) {
    try {
      return { values: [parseJson(text)], tokens: 0 };
    } catch {
      // It may be a flow mapping of YAML, or several documents.
    }
  }
  let tokens = 0;
  const values: unknown[] = [];
  for (const document of text.split(/^---(?=\s|$)/m)) {
    if (!spelling.test(document) || isOtherDefinition(document, spelling)) continue;
    const read = readDocuments(document, { length: limits.length, tokens: Math.min(limits.tokens, budget - tokens) });
    tokens += read.tokens;
    values.push(...read.values);
  }
  return { values, tokens };
}

/** Tells from two lines without escapes that a document is a definition of another name. */
function isOtherDefinition(document: string, spelling: RegExp): boolean {
  if (/^\s*\{/.test(document) || /\\[xuU\r\n]/.test(document)) return false;
  const kinds = document.match(/^["']?kind["']?[ \t]*:.*$/gm) ?? [];
  const names = document.match(/^ {1,8}["']?name["']?[ \t]*:.*$/gm) ?? [];
  const [kind = ''] = kinds;
  return (
    kinds.length === 1 &&
    /^kind: *["']?CustomResourceDefinition["']?\s*(?:#.*)?$/.test(kind) &&
    !names.some((name) => spelling.test(name))
  );
}

function listObjects(value: unknown): Fields[] {
  if (!isFields(value)) return [];
  const { kind, items } = value;
  if (!String(kind).endsWith('List') || !Array.isArray(items)) return [value];
  return items.filter(isFields).map((item) => fieldsOf(item));
}
