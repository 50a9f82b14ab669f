import { basename, dirname } from 'node:path/posix';
import { isFile, readLayer, type LayerEntry } from '../../content/archive/layerReader.ts';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { fieldsAt, fieldsOf, textsOf } from '../../fields.ts';
import type { Descriptor } from '../../content/oci/descriptor.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { parseJson } from '../../content/oci/syntax.ts';
import type { BaseImage } from '../../content/store/derivedImage.ts';
import { readContent, readImageManifest } from '../../content/store/store.ts';
import { DocumentSplitter, type CatalogDocument } from './documentSplitter.ts';
import { addDocument, packageOf, type CatalogPackage } from './package.ts';

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

/** The label that names the folder of a file-based catalog (operator-registry, `containertools.ConfigsLocationLabel`). */
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

/** Which files of the layers read so far are in the image, from the top layer down (OCI image-spec, layer.md, whiteouts). */
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
