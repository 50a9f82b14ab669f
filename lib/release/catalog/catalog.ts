import { basename, dirname } from 'node:path/posix';
import { isFile, readLayer, type LayerEntry } from '#content/archive';
import { type Descriptor, type Digest, parseJson } from '#content/oci';
import { type BaseImage, readContent, readImageManifest } from '#content/store';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { fieldsAt, fieldsOf, textsOf, isFields, listOf, textOf, type Fields } from '#fields';
import { DocumentSplitter, type CatalogDocument } from './documentSplitter.ts';

/** A catalog of operators in an image: a file-based catalog, as `opm` defines it. */
export interface Catalog {
  readonly packages: ReadonlyMap<string, CatalogPackage>;
  /** The folder of the catalog in the image, without a leading slash. */
  readonly folder: string;
  /** The layers that hold nothing but the catalog and its cache. */
  readonly ownLayers: ReadonlySet<Digest>;
  /** The files of the catalog, with the packages in each. */
  readonly files: readonly CatalogFile[];
  readonly image: BaseImage;
}

interface CatalogFile {
  readonly path: string;
  readonly layer: Descriptor;
  readonly packages: ReadonlySet<string>;
}

/**
 * The label that names the folder of a file-based catalog (operator-registry, `containertools.ConfigsLocationLabel`).
 */
const folderLabel = 'operators.operatorframework.io.index.configs.v1';

// Real ones: 100 MB packed and 2 GB unpacked, with a cache as large.
const layerLimits = {
  packed: 4 * 1024 ** 3,
  unpacked: 32 * 1024 ** 3,
  of: 'a catalog of operators',
  code: 'invalid-file',
} as const;

/**
 * Reads a catalog from the layers of an image, each once, as a stream. `root` is the image of one architecture. Throws
 * `unsupported` for an image without a file-based catalog, `invalid-file`, `too-large` and the errors of the source.
 */
export async function readCatalog(image: BaseImage, context: Context): Promise<Catalog> {
  const { source, root } = image;
  const where = `${root.digest} in ${source.name}`;
  const manifest = await readImageManifest(source, root);
  const { folder, cache } = await readFolders(image, manifest.config, where);
  const packages = new Map<string, CatalogPackage>();
  const files: CatalogFile[] = [];
  const ownLayers = new Set<Digest>();
  const view = new LayerView();
  for (const layer of manifest.layers.toReversed()) {
    context.log('debug', `looking for the catalog in ${layer.digest}`);
    const entries = { own: 0, other: 0 };
    await readLayer(source, layer, layerLimits, context, (entry) => {
      const path = normalize(entry.path);
      const isOwn = [folder, cache].some((own) => own !== undefined && isWithin(path, own, entry));
      entries[isOwn ? 'own' : 'other'] += 1;
      if (!view.shows(path, entry) || !isWithin(path, folder) || !isFile(entry) || !isManifestName(path))
        return undefined;
      const packageNames = new Set<string>();
      files.push({ path, layer, packages: packageNames });
      return new DocumentSplitter(`${path} in ${where}`, ({ value }) => {
        packageNames.add(packageOf(value));
        addDocument(packages, value);
      });
    });
    view.finishLayer();
    if (entries.own > 0 && entries.other === 0) ownLayers.add(layer.digest);
  }
  if (packages.size === 0) throw new PluginError('unsupported', `the catalog in ${where} has no operator`);
  return { packages, folder, ownLayers, files, image };
}

/** Reads the documents of some packages again, in the order of the files. Throws what readCatalog throws. */
export async function readPackageDocuments(
  { files, image: { source } }: Catalog,
  names: ReadonlySet<string>,
  onDocument: (document: CatalogDocument) => void,
  context: Context,
): Promise<void> {
  const packageFiles = files.filter((file) => [...file.packages].some((name) => names.has(name)));
  const paths = new Set(packageFiles.map((file) => `${file.layer.digest} ${file.path}`));
  for (const layer of new Set(packageFiles.map((file) => file.layer))) {
    await readLayer(source, layer, layerLimits, context, (entry) => {
      const path = normalize(entry.path);
      if (!paths.has(`${layer.digest} ${path}`) || !isFile(entry)) return undefined;
      return new DocumentSplitter(`${path} in ${source.name}`, (document) => {
        if (names.has(packageOf(document.value))) onDocument(document);
      });
    });
  }
}

/**
 * Which files of the layers read so far are in the image, from the top layer down (OCI image-spec, layer.md,
 * whiteouts).
 */
class LayerView {
  readonly #hidden = new Set<string>();
  #seen: string[] = [];

  /** Returns whether a file of the current layer is in the image, and notes what it hides of the layers below. */
  shows(path: string, { type }: LayerEntry): boolean {
    // The folders of several layers are joined.
    if (type === 'Directory') return false;
    const name = basename(path);
    const folder = dirname(path);
    if (name === '.wh..wh..opq') this.#seen.push(`${folder}/`);
    else if (name.startsWith('.wh.')) this.#seen.push(`${folder}/${name.slice(4)}`);
    else {
      this.#seen.push(path);
      return !this.#isHidden(path);
    }
    return false;
  }

  /** Has the files of the current layer hide those of the layers below. */
  finishLayer(): void {
    for (const path of this.#seen) this.#hidden.add(path);
    this.#seen = [];
  }

  #isHidden(path: string): boolean {
    if (this.#hidden.has(path)) return true;
    for (let folder = dirname(path); folder !== '.'; folder = dirname(folder)) {
      if (this.#hidden.has(`${folder}/`) || this.#hidden.has(folder)) return true;
    }
    return false;
  }
}

const normalize = (path: string): string => path.replace(/^(?:\.?\/)+/, '').replace(/\/+$/, '');
const isManifestName = (path: string): boolean => /\.(?:json|ya?ml)$/.test(path);

/** Returns whether a path is below a folder. The folder and its parents count too, for an entry that is a folder. */
function isWithin(path: string, folder: string, entry?: LayerEntry): boolean {
  if (path.startsWith(`${folder}/`)) return true;
  return entry?.type === 'Directory' && (path === folder || folder.startsWith(`${path}/`) || path === '');
}

function parseConfig(bytes: Buffer, where: string): unknown {
  try {
    return parseJson(bytes.toString());
  } catch (cause) {
    throw new PluginError('invalid-manifest', `the configuration of ${where} is not JSON`, { cause });
  }
}

/** Finds the folders of the catalog and of its cache: by the label, and by the command of the image. */
async function readFolders(
  { source }: BaseImage,
  config: Descriptor | undefined,
  where: string,
): Promise<{ folder: string; cache: string | undefined }> {
  const bytes = config && (await readContent(source, config));
  const settings = fieldsAt(bytes && parseConfig(bytes, where), 'config');
  const label = fieldsOf(settings['Labels'])[folderLabel];
  if (typeof label !== 'string' || normalize(label) === '') {
    throw new PluginError('unsupported', `${where} has no file-based catalog of operators (no label ${folderLabel})`, {
      hint: 'Name an operator index of 4.11 or later, such as registry.redhat.io/redhat/redhat-operator-index:v4.20.',
    });
  }
  const words = [...textsOf(settings['Entrypoint']), ...textsOf(settings['Cmd'])];
  if (words.length === 0) {
    throw new PluginError('unsupported', `${where} has a catalog and no command that serves it`, {
      hint: 'Name a catalog image with opm, as “opm generate dockerfile” describes it.',
    });
  }
  const cache = /^--cache-dir=(.+)$/m.exec(words.join('\n'))?.[1];
  return { folder: normalize(label), cache: cache === undefined ? undefined : normalize(cache) };
}

/** An operator in a file-based catalog (`olm.package`), with what the selection needs to know. */
export interface CatalogPackage {
  readonly name: string;
  defaultChannel: string;
  readonly channels: Map<string, readonly ChannelEntry[]>;
  readonly bundles: Map<string, CatalogBundle>;
}

/** A version of an operator in a channel (`olm.channel`), with the versions that can be updated to it. */
export interface ChannelEntry {
  readonly name: string;
  readonly replaces: string | undefined;
  readonly skips: readonly string[];
  readonly skipRange: string | undefined;
}

/** A version of an operator (`olm.bundle`). */
export interface CatalogBundle {
  readonly name: string;
  readonly version: string;
  /** The bundle image and the images that the operator runs, as the catalog names them. */
  readonly images: readonly string[];
  /** The APIs that it provides: GROUP/VERSION/KIND. */
  readonly provides: readonly string[];
  readonly requires: readonly Requirement[];
  /** The last minor version of OpenShift that it supports, if it names one: `4.19`. */
  readonly maxOpenShiftVersion: string | undefined;
}

/** What an operator needs: another operator, an API, all of some requirements, or any of them. */
export type Requirement =
  | { readonly kind: 'package'; readonly name: string; readonly range: string }
  | { readonly kind: 'api'; readonly api: string }
  | { readonly kind: 'all'; readonly of: readonly Requirement[] }
  | { readonly kind: 'any'; readonly of: readonly Requirement[] };

/** Returns the package of a document: of an `olm.package` its name. */
export function packageOf({ schema, name, package: owner }: Fields): string {
  return textOf(schema === 'olm.package' ? name : owner) ?? '';
}

/** Adds a document to its package. Documents of other schemas change nothing. */
function addDocument(packages: Map<string, CatalogPackage>, value: Fields): void {
  const owner = packageOf(value);
  const { schema } = value;
  if (schema !== 'olm.package' && schema !== 'olm.channel' && schema !== 'olm.bundle') return;
  const operator = packages.get(owner) ?? { name: owner, defaultChannel: '', channels: new Map(), bundles: new Map() };
  packages.set(owner, operator);
  const name = textOf(value['name']) ?? '';
  if (schema === 'olm.package') operator.defaultChannel = textOf(value['defaultChannel']) ?? '';
  if (schema === 'olm.channel') operator.channels.set(name, listOf(value['entries']).map(readEntry));
  if (schema === 'olm.bundle') operator.bundles.set(name, readBundle(name, value));
}

function readEntry({ name, replaces, skips, skipRange }: Fields): ChannelEntry {
  return {
    name: textOf(name) ?? '',
    replaces: textOf(replaces),
    skips: textsOf(skips),
    skipRange: textOf(skipRange),
  };
}

function readBundle(name: string, { image, relatedImages, properties }: Fields): CatalogBundle {
  const valuesOf = (type: string): Fields[] =>
    listOf(properties).flatMap((property) => (property['type'] === type ? [fieldsOf(property['value'])] : []));
  const max = listOf(properties).find(({ type }) => type === 'olm.maxOpenShiftVersion')?.['value'];
  const images = [image, ...listOf(relatedImages).map((related) => related['image'])];
  return {
    name,
    version: textOf(valuesOf('olm.package')[0]?.['version']) ?? '',
    // Some published bundles have related images without an address.
    images: [...new Set(images.flatMap((each) => textOf(each) ?? []))],
    provides: valuesOf('olm.gvk').map(apiOf),
    requires: [
      ...valuesOf('olm.package.required').map(readPackageRequirement),
      ...valuesOf('olm.gvk.required').map((value): Requirement => ({ kind: 'api', api: apiOf(value) })),
      ...valuesOf('olm.constraint').flatMap(readConstraint),
    ],
    maxOpenShiftVersion: typeof max === 'string' || typeof max === 'number' ? String(max) : undefined,
  };
}

function apiOf({ group, version, kind }: Fields): string {
  return [group, version, kind].map((part) => textOf(part) ?? '').join('/');
}

function readPackageRequirement({ packageName, versionRange }: Fields): Requirement {
  return { kind: 'package', name: textOf(packageName) ?? '', range: textOf(versionRange) ?? '' };
}

/** Reads a compound constraint. `not` and `cel` demand no other operator. */
function readConstraint(value: Fields): Requirement[] {
  if (isFields(value['package'])) return [readPackageRequirement(value['package'])];
  if (isFields(value['gvk'])) return [{ kind: 'api', api: apiOf(value['gvk']) }];
  for (const kind of ['all', 'any'] as const) {
    const { constraints } = fieldsOf(value[kind]);
    if (constraints !== undefined) return [{ kind, of: listOf(constraints).flatMap(readConstraint) }];
  }
  return [];
}
