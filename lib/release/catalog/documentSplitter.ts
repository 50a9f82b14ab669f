import type { EntryContent } from '#content/archive';
import { readDocuments } from '#content/files';
import { parseJson } from '#content/oci';
import { messageOf, PluginError } from '#errors';

/** One document of a file-based catalog: its value, and its text as JSON. */
export interface CatalogDocument {
  readonly value: Readonly<Record<string, unknown>>;
  readonly text: string;
}

// Real sizes: bundles with their manifests up to 2 MB, YAML files of 30,000 tokens.
const documentLimit = 32 * 1024 * 1024;
const yamlLimits = { length: 16 * 1024 * 1024, tokens: 1_000_000 };

const code = { quote: 0x22, escape: 0x5c, open: 0x7b, close: 0x7d };
const isBlank = (byte: number): boolean => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);

/**
 * Splits a file of a file-based catalog into its documents, as the file arrives: JSON objects one after another, or
 * YAML documents. Only one JSON object is in memory at a time. Throws `invalid-file` and `too-large`, naming `where`.
 */
export class DocumentSplitter implements EntryContent {
  readonly #where: string;
  readonly #onDocument: (document: CatalogDocument) => void;
  #format: 'json' | 'yaml' | undefined;
  /** The parts of the document that has begun, and their length. */
  #parts: Buffer[] = [];
  #length = 0;
  #depth = 0;
  #inString = false;
  #escaped = false;

  constructor(where: string, onDocument: (document: CatalogDocument) => void) {
    this.#where = where;
    this.#onDocument = onDocument;
  }

  write(chunk: Buffer): void {
    // As opm does, by the first character of the file.
    const first = this.#format ?? chunk.find((byte) => !isBlank(byte));
    if (first === undefined) return;
    this.#format ??= first === code.open ? 'json' : 'yaml';
    if (this.#format === 'yaml') this.#keep(chunk);
    else this.#split(chunk);
  }

  end(): void {
    if (this.#format === 'yaml') this.#emitYaml();
    else if (this.#depth > 0) throw this.#malformed('it ends in the middle of an object');
  }

  #split(chunk: Buffer): void {
    let start = 0;
    for (let at = 0; at < chunk.length; at += 1) {
      const byte = chunk[at] ?? 0;
      if (this.#inString) {
        if (this.#escaped) this.#escaped = false;
        else if (byte === code.escape) this.#escaped = true;
        else if (byte === code.quote) this.#inString = false;
      } else if (byte === code.quote) this.#inString = true;
      else if (byte === code.open) {
        if (this.#depth === 0) start = at;
        this.#depth += 1;
      } else if (byte === code.close && this.#depth > 0) {
        this.#depth -= 1;
        if (this.#depth > 0) continue;
        this.#keep(chunk.subarray(start, at + 1));
        this.#emitJson();
        start = at + 1;
      } else if (this.#depth === 0 && !isBlank(byte)) throw this.#malformed('it has text between its objects');
    }
    if (this.#depth > 0) this.#keep(chunk.subarray(start));
  }

  #keep(part: Buffer): void {
    this.#length += part.length;
    if (this.#length > documentLimit)
      throw new PluginError('too-large', `${this.#where} has a document that is too large`);
    // The buffer of the parser is used again.
    this.#parts.push(Buffer.from(part));
  }

  #take(): string {
    const text = Buffer.concat(this.#parts).toString();
    this.#parts = [];
    this.#length = 0;
    return text;
  }

  #emitJson(): void {
    const text = this.#take();
    this.#emit(
      text,
      this.#parse(() => parseJson(text)),
    );
  }

  #emitYaml(): void {
    const { values } = this.#parse(() => readDocuments(this.#take(), yamlLimits));
    for (const value of values) if (value !== null) this.#emit(JSON.stringify(value), value);
  }

  #emit(text: string, value: unknown): void {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw this.#malformed('it has no object');
    this.#onDocument({ text, value: value as CatalogDocument['value'] });
  }

  #parse<Value>(read: () => Value): Value {
    try {
      return read();
    } catch (cause) {
      throw this.#malformed(messageOf(cause), cause);
    }
  }

  #malformed(why: string, cause?: unknown): PluginError {
    return new PluginError('invalid-file', `${this.#where} is not a file of a catalog: ${why}`, { cause });
  }
}
