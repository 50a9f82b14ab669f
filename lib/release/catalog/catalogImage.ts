import { makeLayer } from '#content/archive';
import { isIndex, type Digest } from '#content/oci';
import { deriveImage, listPlatforms, type BaseImage, type DerivedImage, readImageManifest } from '#content/store';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { fieldsAt } from '#fields';
import { readCatalog, readPackageDocuments, type Catalog, packageOf } from './catalog.ts';
import type { CatalogDocument } from './documentSplitter.ts';
import { selectOperators, type OperatorRequest, type SelectedPackage, type Selection } from './selection.ts';

/** A catalog with the selected operators only. */
export interface FilteredCatalog {
  readonly image: DerivedImage;
  readonly selection: Selection;
  /** The images of the selected operators, as the catalog names them, sorted. */
  readonly images: readonly string[];
}

/** A catalog of operators, with its image for each architecture. */
export interface OpenedCatalog {
  readonly catalog: Catalog;
  readonly base: BaseImage;
  readonly images: readonly BaseImage[];
}

/**
 * Reads a catalog. `architecture` is Go's name; all images of a list are taken if it is absent. Throws the errors of
 * readCatalog, and `not-found` without an image of the architecture.
 */
export async function openCatalog(
  base: BaseImage,
  architecture: string | undefined,
  context: Context,
): Promise<OpenedCatalog> {
  const images = await listImages(base, architecture);
  const [first] = images;
  if (!first) throw noPlatform(base, architecture);
  return { catalog: await readCatalog(first, context), base, images };
}

/**
 * Builds the image of a catalog with some operators only. It has the layers of the original, such as `opm`, and one
 * more. Layers with only the original catalog or its cache are left out. The same inputs give the same bytes. Throws
 * the errors of selectOperators and deriveImage.
 */
export async function filterCatalog(
  { catalog, base, images: [first = base, ...others] }: OpenedCatalog,
  operators: readonly OperatorRequest[],
  context: Context,
): Promise<FilteredCatalog> {
  const selection = selectOperators(catalog, operators);
  const ownLayers = new Set<Digest>(catalog.ownLayers);
  for (const other of others) {
    for (const layer of (await readCatalog(other, context)).ownLayers) ownLayers.add(layer);
  }
  const image = await deriveImage(others.length === 0 ? first : base, {
    what: 'the catalog of operators',
    layer: makeLayer(await makeFiles(catalog, selection.packages, context)),
    createdBy: 'filtered catalog',
    omitted: ownLayers,
    configure: (config) => ({ ...config, Cmd: withoutCache(config['Cmd']) }),
    hint: 'Name an operator index that opm or Red Hat built.',
  });
  const images = selection.packages.flatMap(({ bundles }) => bundles.flatMap((bundle) => bundle.images));
  return { image, selection, images: [...new Set(images)].sort() };
}

async function listImages({ source, root }: BaseImage, architecture: string | undefined): Promise<BaseImage[]> {
  const manifest = await readImageManifest(source, root);
  if (!isIndex(manifest)) return [{ source, root }];
  return listPlatforms(manifest, architecture).map((child) => ({ source, root: child }));
}

function noPlatform({ source, root }: BaseImage, architecture = 'linux'): PluginError {
  return new PluginError('not-found', `the catalog ${root.digest} in ${source.name} has no image for ${architecture}`);
}

// opm builds its cache when it starts. It refuses a cache of another catalog (`--cache-enforce-integrity`, which
// `--cache-dir` turns on).
function withoutCache(command: unknown): unknown {
  return Array.isArray(command) ? command.filter((word) => !String(word).startsWith('--cache-')) : command;
}

/** Makes the files of the filtered catalog: one for each operator. The folder hides what layers below have in it. */
async function makeFiles(
  catalog: Catalog,
  packages: readonly SelectedPackage[],
  context: Context,
): Promise<ReadonlyMap<string, Buffer>> {
  const texts = new Map(packages.map(({ name }): [string, string[]] => [name, []]));
  const byName = new Map(packages.map((selected) => [selected.name, selected]));
  await readPackageDocuments(
    catalog,
    new Set(byName.keys()),
    (document) => {
      const selected = byName.get(packageOf(document.value));
      const text = selected && filterDocument(document, selected);
      if (text !== undefined) texts.get(selected?.name ?? '')?.push(text);
    },
    context,
  );
  return new Map([
    [`${catalog.folder}/.wh..wh..opq`, Buffer.alloc(0)],
    ...[...texts].map(([name, list]): [string, Buffer] => [
      `${catalog.folder}/${name}/catalog.json`,
      Buffer.from(`${list.join('\n')}\n`),
    ]),
  ]);
}

/** Returns the text of a document in the filtered catalog; undefined if it is left out. */
function filterDocument({ value, text }: CatalogDocument, selected: SelectedPackage): string | undefined {
  const { schema, name } = value;
  if (schema === 'olm.package') return JSON.stringify({ ...value, defaultChannel: selected.defaultChannel });
  if (schema === 'olm.channel') {
    const entries = selected.channels.get(String(name));
    return entries && JSON.stringify({ ...value, entries: entries.map(formatEntry) });
  }
  if (schema === 'olm.bundle') return selected.bundles.some((bundle) => bundle.name === name) ? text : undefined;
  if (schema !== 'olm.deprecations' || !Array.isArray(value['entries'])) return text;
  const entries = (value['entries'] as unknown[]).filter((entry) => isKept(entry, selected));
  return entries.length > 0 ? JSON.stringify({ ...value, entries }) : undefined;
}

function formatEntry({
  skips,
  ...entry
}: SelectedPackage['channels'] extends ReadonlyMap<string, readonly (infer E)[]> ? E : never): object {
  return { ...entry, ...(skips.length > 0 && { skips }) };
}

/** Returns whether a deprecation is about something that is kept. */
function isKept(entry: unknown, { channels, bundles }: SelectedPackage): boolean {
  const { schema, name: named } = fieldsAt(entry, 'reference');
  if (schema === 'olm.channel') return channels.has(String(named));
  if (schema === 'olm.bundle') return bundles.some(({ name }) => name === named);
  return true;
}
