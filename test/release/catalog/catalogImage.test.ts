import { expect } from 'chai';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import { readContent } from '../../../lib/content/store/store.ts';
import { makeBlob } from '../../support/content/layers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { addCatalog, catalogFiles, catalogLayers } from '../../support/release/catalogImage.ts';
import { operators, useCatalogs } from './catalogCases.ts';

describe('filterCatalog', () => {
  const { content, filter, filterLayers, manifestOf, filesOf } = useCatalogs();

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
