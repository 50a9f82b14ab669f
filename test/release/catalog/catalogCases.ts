import { gunzipSync } from 'node:zlib';
import { Parser } from 'tar';
import type { ReleaseProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { parseManifest, type Descriptor, type Manifest } from '../../../lib/content/oci/descriptor.ts';
import { readContent } from '../../../lib/content/store/store.ts';
import { filterCatalog, openCatalog, type FilteredCatalog } from '../../../lib/release/catalog/catalogImage.ts';
import type { OperatorRequest } from '../../../lib/release/catalog/selection.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import type { TestLayer } from '../../support/content/layers.ts';
import { openProvider } from '../../support/content/provider.ts';
import { makeContext } from '../../support/context.ts';
import { addCatalog, catalogFiles, catalogLayers, type TestOperator } from '../../support/release/catalogImage.ts';

/** A channel with updates, skipped versions and a range. */
export const chain = [
  { version: '1.3.0', replaces: '1.2.0', skipRange: '>=1.2.0 <1.3.0' },
  { version: '1.2.0', replaces: '1.1.0', skips: ['1.1.5'] },
  { version: '1.1.5', replaces: '1.1.0' },
  { version: '1.1.0', replaces: '1.0.0' },
  { version: '1.0.0' },
];
const gvk = (kind: string): object => ({ group: 'example.com', version: 'v1', kind });
/** Operators that require others. */
export const operators: readonly TestOperator[] = [
  { name: 'web', channels: { stable: chain, fast: [{ version: '2.0.0-rc.1', skipRange: '>=1.0.0 <2.0.0' }] } },
  {
    name: 'shop',
    channels: { stable: [{ version: '3.0.0' }] },
    properties: [
      { type: 'olm.package.required', value: { packageName: 'web', versionRange: '>=1.0.0 <1.3.0' } },
      { type: 'olm.gvk.required', value: gvk('Queue') },
      {
        type: 'olm.constraint',
        value: {
          any: { constraints: [{ gvk: gvk('Absent') }, { package: { packageName: 'gone', versionRange: '1.x' } }] },
        },
      },
    ],
  },
  {
    name: 'queue',
    channels: { stable: [{ version: '0.1.0' }] },
    properties: [{ type: 'olm.gvk', value: gvk('Queue') }],
  },
  { name: 'other', channels: { stable: [{ version: '9.0.0' }] } },
];

/** An entry of a channel. */
export interface Entry {
  name: string;
  replaces?: string;
  skips?: string[];
}

/** Prepares catalogs in a registry, and filters them. */
export function useCatalogs() {
  const content = new TestContent();
  let registry: TestRegistry;
  let provider: ReleaseProvider;

  before(async () => {
    registry = await startRegistry({ content: content.content });
    provider = openProvider(makeContext());
  });
  after(async () => {
    await provider[Symbol.asyncDispose]();
    await registry.stop();
  });

  const filter = async (
    root: Descriptor,
    requests: readonly OperatorRequest[],
    architecture?: string,
  ): Promise<FilteredCatalog> => {
    const source = provider.sourceOf({ registry: registry.host, repository: 'index' });
    return filterCatalog(await openCatalog({ source, root }, architecture, makeContext()), requests, makeContext());
  };
  const filterLayers = (layers: readonly TestLayer[], ...requests: OperatorRequest[]): Promise<FilteredCatalog> =>
    filter(addCatalog(content, 'index', layers), requests);
  const filterOperators = (...requests: OperatorRequest[]): Promise<FilteredCatalog> =>
    filterLayers(catalogLayers(catalogFiles(operators)), ...requests);

  const manifestOf = async ({ image: { source, root } }: FilteredCatalog, digest?: Descriptor): Promise<Manifest> =>
    parseManifest(await readContent(source, digest ?? root), 'the image');
  const filesOf = async (filtered: FilteredCatalog): Promise<Map<string, string>> => {
    const layer = (await manifestOf(filtered)).layers.at(-1)!;
    const tar = gunzipSync(await readContent(filtered.image.source, layer));
    const files = new Map<string, string>();
    const parser = new Parser({
      onReadEntry: (entry) => {
        files.set(entry.path, '');
        entry.on('data', (chunk) => files.set(entry.path, (files.get(entry.path) ?? '') + chunk.toString()));
      },
    });
    parser.end(tar);
    return files;
  };
  const entriesOf = async (filtered: FilteredCatalog, name: string): Promise<Entry[]> => {
    const text = (await filesOf(filtered)).get(`configs/${name}/catalog.json`) ?? '';
    const documents = text
      .trim()
      .split(/\n(?=\{)/)
      .map((line) => JSON.parse(line) as { schema: string; entries?: Entry[] });
    return documents.flatMap(({ schema, entries = [] }) => (schema === 'olm.channel' ? entries : []));
  };

  return { content, filter, filterLayers, filterOperators, manifestOf, filesOf, entriesOf };
}
