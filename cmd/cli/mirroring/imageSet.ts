import { readSmallFile, readSmallInput } from '#content/files';
import { PluginError, messageOf } from '#errors';
import { isFields, type Fields } from '#fields';
import { listBelow } from '#text';
import type { OptionRecord } from '../command.ts';
import { findSimilar } from '../similar.ts';
import { checkImage } from '../values.ts';

/** The kind of the files of oc-mirror. Both versions of its API have the fields that are read here. */
export const imageSetKind = { group: 'mirror.openshift.io', kind: 'ImageSetConfiguration' } as const;

/** The options that a file of oc-mirror stands for. */
export interface ImageSetOptions {
  /** The values by the names of options. */
  readonly values: ReadonlyMap<string, unknown>;
  /** The fields without effect here, each with the reason. Nothing of the content is lost by them. */
  readonly notes: readonly string[];
}

/** The archive of graph data that oc-mirror downloads for `graph`. */
const graphData = 'https://api.openshift.com/api/upgrades_info/graph-data';
/** The range of all versions of a channel, pre-releases included. */
const allVersions = '>=0.0.0-0';
const versionFields = ['minVersion', 'maxVersion', 'minBundle'] as const;
const targetFields = ['targetCatalog', 'targetName', 'targetTag', 'targetRepo', 'targetCatalogSourceTemplate'] as const;

/**
 * Reads an ImageSetConfiguration of oc-mirror (mirror.openshift.io/v1alpha2 and v2alpha1) as the options of a command.
 * Accepts names of fields in any case, as its parser does. Throws `invalid-file` for unknown fields, and `unsupported`
 * with all fields whose content the command cannot take. `path` is for messages. Source: pkg/api of
 * openshift/oc-mirror.
 */
export function readImageSet(object: Fields, path: string, options: OptionRecord): ImageSetOptions {
  const reader = new ImageSetReader(path, options);
  reader.read(object);
  return reader.finish();
}

class ImageSetReader {
  readonly #path: string;
  readonly #options: OptionRecord;
  readonly #values = new Map<string, unknown>();
  readonly #problems: string[] = [];
  readonly #notes: string[] = [];

  constructor(path: string, options: OptionRecord) {
    this.#path = path;
    this.#options = options;
  }

  finish(): ImageSetOptions {
    if (this.#problems.length === 0) return { values: this.#values, notes: this.#notes };
    const title = `${this.#path} asks for content that has no counterpart here:`;
    throw new PluginError('unsupported', listBelow(title, this.#problems), {
      hint: 'Remove these fields, and bring their content by other means, such as additionalImages.',
    });
  }

  read(object: Fields): void {
    const { mirror, archiveSize, storageConfig } = this.#fields(object, '', [
      'apiVersion',
      'kind',
      'metadata',
      'mirror',
      'archiveSize',
      'storageConfig',
    ]);
    if (storageConfig !== undefined) this.#note('storageConfig', 'runs resume without stored metadata');
    if (archiveSize !== undefined)
      this.#setOr('volume-size', `${JSON.stringify(archiveSize)}Gi`, 'archiveSize', 'no archive');
    const names = ['platform', 'operators', 'additionalImages', 'helm', 'blockedImages', 'samples'] as const;
    const parts = this.#fields(mirror ?? {}, 'mirror', names);
    for (const name of ['helm', 'blockedImages', 'samples'] as const)
      if (!isEmpty(parts[name])) this.#problems.push(`mirror.${name}`);
    if (parts.platform !== undefined) this.#readPlatform(parts.platform);
    this.#readOperators(this.#list(parts.operators, 'mirror.operators'));
    const images = this.#list(parts.additionalImages, 'mirror.additionalImages').map((image, index) =>
      this.#readImage(image, `mirror.additionalImages[${index}]`),
    );
    const option = 'extra-image' in this.#options ? 'extra-image' : 'additional-image';
    if (images.length > 0) this.#values.set(option, images);
  }

  #readPlatform(value: unknown): void {
    const place = 'mirror.platform';
    const names = ['graph', 'channels', 'architectures', 'platforms', 'release', 'kubeVirtContainer'] as const;
    const { graph, channels, architectures, platforms, release, kubeVirtContainer } = this.#fields(value, place, names);
    if (kubeVirtContainer === true) this.#problems.push(`${place}.kubeVirtContainer`);
    if (graph === true) this.#setOr('graph-data', graphData, `${place}.graph`, 'a bundle updates without update graph');
    if (release !== undefined) this.#setRelease(release);
    const named = Array.isArray(architectures) ? architectures.map(String) : [];
    if (named.length > 1) this.#problems.push(`${place}.architectures: one architecture at a time, or multi for all`);
    // oc-mirror takes these out of the multi-architecture release.
    const arch = isEmpty(platforms) ? named[0] : 'multi';
    if (!isEmpty(platforms)) this.#note(`${place}.platforms`, 'the release is taken with all its architectures');
    if (arch !== undefined) this.#values.set('arch', arch);
    const ranges = this.#list(channels, `${place}.channels`).map((channel, index) =>
      this.#readChannel(channel, `${place}.channels[${index}]`),
    );
    if (ranges.length === 0) return;
    this.#values.set(
      'channel',
      ranges.map(({ text }) => text),
    );
    const shortest = new Set(ranges.map(({ isShortest }) => isShortest));
    if (shortest.size > 1) this.#problems.push(`${place}.channels: shortestPath of some channels only`);
    else if (shortest.has(true)) this.#values.set('shortest-path', true);
  }

  #setRelease(release: unknown): void {
    if ('release-image' in this.#options) this.#values.set('release-image', release);
    else this.#values.set('from', release);
  }

  #readChannel(value: unknown, place: string): { text: string; isShortest: boolean } {
    const names = ['name', 'type', 'minVersion', 'maxVersion', 'shortestPath', 'full'] as const;
    const { name, type, minVersion, maxVersion, shortestPath, full } = this.#fields(value, place, names);
    if (type !== undefined && type !== 'ocp')
      this.#problems.push(`${place}.type: ${this.#text(type, `${place}.type`)}`);
    const [min, max] = [this.#text(minVersion, `${place}.minVersion`), this.#text(maxVersion, `${place}.maxVersion`)];
    const hasRange = min !== '' || max !== '' || full === true;
    const range = hasRange ? `:${min}..${max}` : '';
    return { text: this.#text(name, `${place}.name`, true) + range, isShortest: shortestPath === true };
  }

  #readOperators(catalogs: readonly unknown[]): void {
    if (catalogs.length === 0) return;
    if (!('operator' in this.#options)) {
      this.#problems.push('mirror.operators: only oc adm-upgrade-bundle create takes operators');
      return;
    }
    const all = catalogs.map((value, index) => this.#readCatalog(value, `mirror.operators[${index}]`));
    this.#values.set('catalog', [...new Set(all.map(({ catalog }) => catalog))]);
    this.#values.set(
      'operator',
      all.flatMap(({ operators }) => operators),
    );
  }

  #readCatalog(value: unknown, place: string): { catalog: string; operators: string[] } {
    const own = ['catalog', 'packages', 'full', 'skipDependencies', 'platforms', 'originalRef'] as const;
    const fields = this.#fields(value, place, [...own, ...targetFields]);
    this.#noteTargets(fields, place);
    if (fields.skipDependencies === true)
      this.#note(`${place}.skipDependencies`, 'operators that others need are added');
    const catalog = this.#registryImage(fields.catalog, `${place}.catalog`);
    const packages = this.#list(fields.packages, `${place}.packages`);
    if (packages.length === 0) this.#problems.push(`${place}: all operators of ${catalog}; name packages`);
    const operators = packages.flatMap((each, index) =>
      this.#readPackage(each, `${place}.packages[${index}]`, fields.full === true),
    );
    return { catalog, operators };
  }

  /** Returns the operator once for each of its channels, the default channel first. */
  #readPackage(value: unknown, place: string, isFull: boolean): string[] {
    const names = ['name', 'channels', 'defaultChannel', ...versionFields] as const;
    const fields = this.#fields(value, place, names);
    const name = this.#text(fields.name, `${place}.name`, true);
    const common = this.#readRange(fields, place);
    const channels = this.#list(fields.channels, `${place}.channels`).map((channel, index) => {
      const own = this.#fields(channel, `${place}.channels[${index}]`, ['name', ...versionFields]);
      return {
        name: this.#text(own.name, `${place}.channels[${index}].name`, true),
        range: this.#readRange(own, `${place}.channels[${index}]`) ?? common,
      };
    });
    if (channels.length === 0) {
      if (isFull) return [`${name}@*:${allVersions}`];
      const first = fields.defaultChannel === undefined ? name : `${name}@${this.#text(fields.defaultChannel, place)}`;
      return [common === undefined ? first : `${first}:${common}`];
    }
    const range = isFull ? allVersions : undefined;
    return channels
      .toSorted((a, b) => Number(b.name === fields.defaultChannel) - Number(a.name === fields.defaultChannel))
      .map((channel) => [`${name}@${channel.name}`, channel.range ?? range].filter(Boolean).join(':'));
  }

  #readRange(fields: Readonly<Record<(typeof versionFields)[number], unknown>>, place: string): string | undefined {
    if (fields.minBundle !== undefined) this.#problems.push(`${place}.minBundle`);
    const [min, max] = [fields.minVersion, fields.maxVersion].map((end) => this.#text(end, `${place}, a version`));
    const ends = [min === '' ? '' : `>=${min}`, max === '' ? '' : `<=${max}`].filter((end) => end !== '');
    if (ends.length === 0) return undefined;
    return min === max ? `=${min}` : ends.join(' ');
  }

  #readImage(value: unknown, place: string): string {
    const fields = this.#fields(value, place, ['name', 'platforms', ...targetFields]);
    this.#noteTargets(fields, place);
    return this.#registryImage(fields.name, `${place}.name`);
  }

  /** Returns the name of an image, which oc-mirror takes with its transport too. */
  #registryImage(value: unknown, place: string): string {
    const image = this.#text(value, place, true).replace(/^docker:\/\//, '');
    if (image.includes('://')) this.#problems.push(`${place}: ${image}, which is not in a registry`);
    return image;
  }

  #noteTargets(fields: Fields, place: string): void {
    for (const name of targetFields)
      if (fields[name] !== undefined)
        this.#note(`${place}.${name}`, 'images keep their names, and --to says where they go');
    if (!isEmpty(fields['platforms']))
      this.#note(`${place}.platforms`, 'images are taken with all their architectures');
  }

  /** Sets an option, or notes that a command without it needs none. */
  #setOr(option: string, value: unknown, field: string, reason: string): void {
    if (option in this.#options) this.#values.set(option, value);
    else this.#note(field, reason);
  }

  #note(field: string, reason: string): void {
    this.#notes.push(`${this.#path}: ${field} has no effect: ${reason}`);
  }

  /**
   * Returns the fields of an object by their names here. Throws `invalid-file` for another value and for unknown names.
   */
  #fields<Name extends string>(value: unknown, place: string, names: readonly Name[]): Record<Name, unknown> {
    if (!isFields(value)) throw this.#invalid(`${place} is not an object`);
    const entries = Object.entries(value).map(([given, each]) => {
      const name = names.find((known) => known.toLowerCase() === given.toLowerCase());
      if (name !== undefined) return [name, each];
      const similar = findSimilar(given, names);
      throw this.#invalid(
        `unknown field ${[place, given].filter((part) => part !== '').join('.')}`,
        similar === undefined ? `It can be ${names.join(', ')}.` : `Did you mean ${similar}?`,
      );
    });
    return Object.fromEntries(entries) as Record<Name, unknown>;
  }

  #list(value: unknown, place: string): readonly unknown[] {
    if (value === undefined || value === null) return [];
    if (!Array.isArray(value)) throw this.#invalid(`${place} is not a list`);
    return value;
  }

  /** Returns a text; empty for none, unless it is required. Throws `invalid-file` for another value. */
  #text(value: unknown, place: string, isRequired = false): string {
    if (typeof value === 'string' && (value !== '' || !isRequired)) return value;
    if ((value === undefined || value === null) && !isRequired) return '';
    if (value === undefined || value === null || value === '') throw this.#invalid(`${place} is missing`);
    throw this.#invalid(`${place} must be text`, 'Put the value in quotes, because YAML reads it as something else.');
  }

  #invalid(why: string, hint?: string): PluginError {
    return new PluginError('invalid-file', `${this.#path}: ${why}`, { hint });
  }
}

function isEmpty(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return value === undefined || value === null || (isFields(value) && Object.values(value).every(isEmpty));
}

/** The option of commands that take a list of additional images. */
export const imageListOption = {
  'images-from': {
    type: 'string',
    describe: 'File with additional images, one on each line, with # before comments; - for the standard input',
    suggest: 'files',
    alsoTakes: 'stdin',
  },
} as const satisfies OptionRecord;

const sizeLimit = 1024 * 1024;

/**
 * Reads the images of `--images-from`; none without a file. Throws `invalid-file` with the line of a malformed image,
 * `too-large`, `not-found` and `not-readable`.
 */
export async function readImageList(path: string | undefined, stdin: AsyncIterable<Buffer>): Promise<string[]> {
  if (path === undefined) return [];
  const where = path === '-' ? 'the standard input' : path;
  const text = (
    path === '-' ? await readSmallInput(stdin, sizeLimit) : await readSmallFile(path, sizeLimit)
  ).toString();
  const lines = text.split(/\r?\n/).map((line) => line.replace(/(?:^|\s)#.*$/, '').trim());
  return lines.flatMap((image, index) => {
    if (image === '') return [];
    try {
      checkImage(image);
      return [image];
    } catch (cause) {
      const hint = 'Write one image on each line, such as registry.example.com/team/app:1.0, and # before a comment.';
      throw new PluginError('invalid-file', `${where}, line ${index + 1}: ${messageOf(cause)}`, { hint, cause });
    }
  });
}
