import { gunzipSync } from 'node:zlib';
import { expect } from 'chai';
import { Parser } from 'tar';
import { stringify } from 'yaml';
import type { ReleaseProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { parseManifest, type Descriptor, type Manifest } from '../../../lib/content/oci/descriptor.ts';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import { readContent } from '../../../lib/content/store/store.ts';
import type { ErrorCode } from '../../../lib/errors.ts';
import { filterCatalog, openCatalog, type FilteredCatalog } from '../../../lib/release/catalog/catalogImage.ts';
import type { OperatorRequest } from '../../../lib/release/catalog/selection.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob, makeFileLayer, type TestLayer } from '../../support/content/layers.ts';
import { openProvider } from '../../support/content/provider.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import {
  addCatalog,
  catalogDocuments,
  catalogFiles,
  catalogLayers,
  type TestOperator,
} from '../../support/release/catalogImage.ts';

const chain = [
  { version: '1.3.0', replaces: '1.2.0', skipRange: '>=1.2.0 <1.3.0' },
  { version: '1.2.0', replaces: '1.1.0', skips: ['1.1.5'] },
  { version: '1.1.5', replaces: '1.1.0' },
  { version: '1.1.0', replaces: '1.0.0' },
  { version: '1.0.0' },
];
const gvk = (kind: string): object => ({ group: 'example.com', version: 'v1', kind });
const operators: readonly TestOperator[] = [
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

describe('filterCatalog', () => {
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
  interface Entry {
    name: string;
    replaces?: string;
    skips?: string[];
  }
  const entriesOf = async (filtered: FilteredCatalog, name: string): Promise<Entry[]> => {
    const text = (await filesOf(filtered)).get(`configs/${name}/catalog.json`) ?? '';
    const documents = text
      .trim()
      .split(/\n(?=\{)/)
      .map((line) => JSON.parse(line) as { schema: string; entries?: Entry[] });
    return documents.flatMap(({ schema, entries = [] }) => (schema === 'olm.channel' ? entries : []));
  };

  const updates: readonly (readonly [title: string, request: OperatorRequest, versions: string[]])[] = [
    ['only the head by default', { name: 'web' }, ['1.3.0']],
    ['each update from an installed version', { name: 'web', installed: '1.0.0' }, ['1.3.0', '1.2.0', '1.1.0']],
    ['the update of a skipped version', { name: 'web', installed: '1.1.5' }, ['1.3.0', '1.2.0']],
    ['the update by a range of versions', { name: 'web', installed: '1.2.7' }, ['1.3.0']],
    ['the head if it is installed', { name: 'web', installed: '1.3.0' }, ['1.3.0']],
    ['another channel', { name: 'web', channel: 'fast', installed: '1.1.0' }, ['2.0.0-rc.1']],
  ];
  for (const [title, request, versions] of updates) {
    it(`takes ${title}`, async () => {
      const entries = await entriesOf(await filterOperators(request), 'web');
      expect(entries.map(({ name }) => name)).to.have.members(versions.map((version) => `web.v${version}`));
    });
  }

  it('refuses a channel with two newest versions', async () => {
    const stable = [
      { version: '1.3.0', replaces: '1.1.0' },
      { version: '1.2.0', replaces: '1.1.0' },
      { version: '1.1.0' },
    ];
    const layers = catalogLayers(catalogFiles([{ name: 'forked', channels: { stable } }]));
    const error = await failureOf(filterLayers(layers, { name: 'forked' }), 'invalid-file');
    expect(error.message).to.include('channel stable of operator forked has no single newest version');
  });

  it('reads a channel whose versions replace each other in a circle', async () => {
    const stable = [
      { version: '1.3.0', replaces: '1.2.0' },
      { version: '1.2.0', replaces: '1.1.0' },
      { version: '1.1.0', replaces: '1.2.0' },
    ];
    const layers = catalogLayers(catalogFiles([{ name: 'round', channels: { stable } }]));
    const entries = await entriesOf(await filterLayers(layers, { name: 'round' }), 'round');
    expect(entries.map(({ name }) => name)).to.deep.equal(['round.v1.3.0']);
  });

  it('takes the updates of a version that the catalog no longer has', async () => {
    const stable = [
      { version: '1.2.0', replaces: '1.1.0', skips: ['1.1.3'] },
      { version: '1.1.0', replaces: '1.0.0' },
    ];
    const layers = catalogLayers(catalogFiles([{ name: 'short', channels: { stable } }]));
    const namesFrom = async (installed: string): Promise<string[]> =>
      (await entriesOf(await filterLayers(layers, { name: 'short', installed }), 'short')).map(({ name }) => name);
    expect(await namesFrom('1.0.0')).to.have.members(['short.v1.2.0', 'short.v1.1.0']);
    expect(await namesFrom('1.1.3')).to.have.members(['short.v1.2.0']);
    await failureOf(namesFrom('0.9.0'), 'not-found');
  });

  it('takes required operators, and names operators that the catalog lacks', async () => {
    const { selection, images } = await filterOperators({ name: 'shop' });
    const names = selection.packages.map(({ name, neededBy, bundles }) => [
      name,
      neededBy,
      bundles.map((each) => each.version),
    ]);
    expect(names).to.deep.equal([
      ['queue', ['shop'], ['0.1.0']],
      ['shop', [], ['3.0.0']],
      ['web', ['shop'], ['1.3.0', '1.2.0']],
    ]);
    expect(selection.missing).to.deep.equal([
      'shop.v3.0.0 needs an operator with example.com/v1/Absent or operator gone 1.x',
    ]);
    expect(images).to.have.length(4);
  });

  describe('with versions that only another channel has', () => {
    // As in the test catalogs of oc-mirror: the default channel of bar is too new for foo.
    const alpha = [
      { version: '0.2.1', replaces: '0.1.1' },
      { version: '0.1.1', replaces: '0.1.0' },
      { version: '0.1.0' },
    ];
    const required = { packageName: 'bar', versionRange: '<0.2.0' };
    const catalog = catalogLayers(
      catalogFiles([
        { name: 'bar', channels: { stable: [{ version: '1.0.0' }], alpha, zeta: [{ version: '0.0.1' }] } },
        {
          name: 'foo',
          channels: { beta: [{ version: '0.3.0' }] },
          properties: [{ type: 'olm.package.required', value: required }],
        },
      ]),
    );
    const summarize = ({ selection: { packages, missing } }: FilteredCatalog): unknown[] => [
      ...packages.map(({ name, channels, defaultChannel, bundles }) =>
        [name, defaultChannel, [...channels.keys()].join('+'), ...bundles.map(({ version }) => version)].join(' '),
      ),
      ...missing,
    ];

    it('takes a dependency from a channel that is not the default one', async () => {
      const filtered = await filterLayers(catalog, { name: 'foo' });
      expect(summarize(filtered)).to.deep.equal(['bar alpha alpha 0.2.1 0.1.1', 'foo beta beta 0.3.0']);
    });

    it('adds that channel to a requested channel', async () => {
      const filtered = await filterLayers(catalog, { name: 'bar' }, { name: 'foo' });
      expect(summarize(filtered)[0]).to.equal('bar stable stable+alpha 1.0.0 0.2.1 0.1.1');
    });

    it('takes all channels of an operator, its own first', async () => {
      const all = await filterLayers(catalog, { name: 'bar', channel: '*', range: '>=0.0.0-0' });
      expect(summarize(all)[0]).to.equal('bar stable stable+alpha+zeta 1.0.0 0.2.1 0.1.1 0.1.0 0.0.1');
    });

    it('takes the versions of a range only, and needs no others', async () => {
      const bar = { name: 'bar', channel: 'alpha' };
      const one = await filterLayers(catalog, { name: 'foo' }, { ...bar, range: '=0.1.0' });
      expect(summarize(one)).to.deep.equal(['bar alpha alpha 0.1.0', 'foo beta beta 0.3.0']);
      const two = await filterLayers(catalog, { ...bar, range: '>=0.1.0 <0.2.0' });
      expect(await entriesOf(two, 'bar')).to.deep.equal([
        { name: 'bar.v0.1.1', replaces: 'bar.v0.1.0' },
        { name: 'bar.v0.1.0' },
      ]);
      const apart = await entriesOf(await filterLayers(catalog, { ...bar, range: '=0.1.0 || =0.2.1' }), 'bar');
      expect(apart).to.deep.equal([
        { name: 'bar.v0.2.1', replaces: 'bar.v0.1.1', skips: ['bar.v0.1.0'] },
        { name: 'bar.v0.1.0' },
      ]);
      const failure = await failureOf(filterLayers(catalog, { ...bar, range: '>=3.0.0' }), 'not-found');
      expect(failure.message).to.equal('operator bar has no version >=3.0.0 in channel alpha');
      expect(failure.hint).to.contain('0.2.1, 0.1.1');
    });
  });

  it('keeps opm, and leaves out the layers of the catalog and its cache', async () => {
    const layers = catalogLayers(catalogFiles(operators));
    const filtered = await filterLayers(layers, { name: 'web' });
    const {
      config,
      layers: [base, own, ...others],
    } = await manifestOf(filtered);
    expect([base?.digest, others]).to.deep.equal([layers[0]?.digest, []]);
    const { config: settings, rootfs } = JSON.parse(String(await readContent(filtered.image.source, config!))) as {
      config: object;
      rootfs: { diff_ids: Digest[] };
    };
    expect(settings).to.deep.include({ Entrypoint: ['/bin/opm'], Cmd: ['serve', '/configs'] });
    expect(rootfs.diff_ids).to.have.length(2);
    expect(own).not.to.equal(undefined);
    const files = await filesOf(filtered);
    expect([...files.keys()].filter((path) => !path.endsWith('/'))).to.deep.equal([
      'configs/.wh..wh..opq',
      'configs/web/catalog.json',
    ]);
    const text = files.get('configs/web/catalog.json');
    expect(text).to.contain('"defaultChannel":"stable"').and.contain('"message":"1.3.0"').and.not.contain('1.0.0');
  });

  it('gives the same bytes, and a list for several architectures', async () => {
    const layers = catalogLayers(catalogFiles(operators));
    const images = ['amd64', 'arm64'].map((architecture) => addCatalog(content, 'index', layers, { architecture }));
    const list = content.addList('index', images);
    const all = await filter(list, [{ name: 'web' }]);
    const { manifests } = await manifestOf(all);
    expect(manifests.map(({ platform }) => platform?.architecture)).to.deep.equal(['amd64', 'arm64']);
    const one = await filter(list, [{ name: 'web' }], 'arm64');
    expect(one.image.root.digest).to.equal(manifests[1]?.digest);
    const failure = await failureOf(filter(list, [{ name: 'web' }], 's390x'), 'not-found');
    expect(failure.message).to.match(/^the catalog sha256:.* has no image for s390x$/);
  });

  it('reads the files that are in the image: of upper layers, YAML too, not deleted ones', async () => {
    const file = (name: string, version: string): string =>
      catalogDocuments({ name, channels: { stable: [{ version }] } })
        .map((each) => stringify(each))
        .join('---\n');
    const lower = new Map([
      ['configs/web.yaml', file('web', '1.0.0')],
      ['configs/old/a.yaml', file('old', '1.0.0')],
      ['configs/b/b.yaml', file('b', '1.0.0')],
    ]);
    const upper = new Map([
      ['configs/web.yaml', file('web', '2.0.0')],
      ['configs/.wh.old', ''],
      ['configs/b/.wh..wh..opq', ''],
    ]);
    const layers = [makeFileLayer(lower), makeFileLayer(upper)];
    expect((await filterLayers(layers, { name: 'web' })).selection.packages[0]?.bundles[0]?.version).to.equal('2.0.0');
    const failure = await failureOf(filterLayers(layers, { name: 'old' }), 'not-found');
    expect([failure.message, failure.hint]).to.deep.equal(['the catalog has no operator old', 'It has web.']);
  });

  const refusals: readonly (readonly [
    title: string,
    files: Record<string, string> | undefined,
    request: OperatorRequest,
    code: ErrorCode,
    message: RegExp,
  ])[] = [
    ['an unknown operator', undefined, { name: 'webb' }, 'not-found', /no operator webb/],
    ['an unknown channel', undefined, { name: 'web', channel: 'slow' }, 'not-found', /web has no channel slow/],
    [
      'a version without updates',
      undefined,
      { name: 'web', installed: '0.5.0' },
      'not-found',
      /no update from 0\.5\.0 to web\.v1\.3\.0/,
    ],
    [
      'half a document',
      { 'web/catalog.json': '{"schema": "olm.package"' },
      { name: 'web' },
      'invalid-file',
      /ends in the middle of an object/,
    ],
    [
      'text between documents',
      { 'web/catalog.json': '{"schema": "x"} and' },
      { name: 'web' },
      'invalid-file',
      /text between its objects/,
    ],
    [
      'malformed JSON',
      { 'web/catalog.json': '{"schema": nothing}' },
      { name: 'web' },
      'invalid-file',
      /malformed at line 1/,
    ],
    ['an empty catalog', { 'README.md': 'nothing' }, { name: 'web' }, 'unsupported', /has no operator/],
    [
      'a name that leaves the folder',
      Object.fromEntries(catalogFiles([{ name: '../../etc', channels: { a: [{ version: '1.0.0' }] } }])),
      { name: '../../etc' },
      'not-found',
      /no operator/,
    ],
  ];
  for (const [title, files, request, code, message] of refusals) {
    it(`refuses ${title}`, async () => {
      const given = files ? new Map(Object.entries(files)) : catalogFiles(operators);
      expect((await failureOf(filterLayers(catalogLayers(given), request), code)).message).to.match(message);
    });
  }

  it('refuses a configuration that is not JSON', async () => {
    const config = makeBlob(Buffer.from('{'));
    content.addBlob(config);
    const mediaType = 'application/vnd.oci.image.manifest.v1+json';
    const { digest, size } = config;
    const manifest = { schemaVersion: 2, mediaType, config: { mediaType: 'x', digest, size }, layers: [] };
    const root = content.addManifest('index', mediaType, manifest);
    expect((await failureOf(filter(root, []), 'invalid-manifest')).message).to.match(
      /configuration of .* is not JSON$/,
    );
  });

  it('refuses an image without a catalog', async () => {
    const root = content.addImage('index', { architecture: 'amd64', layers: catalogLayers(new Map()) });
    expect((await failureOf(filter(root, [{ name: 'web' }]), 'unsupported')).message).to.match(
      /no file-based catalog of operators/,
    );
  });
});
