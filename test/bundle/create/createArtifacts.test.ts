import { expect } from 'chai';
import { inspectBundle } from '../../../lib/bundle/inspect/inspect.ts';
import type { Bundle } from '../../../lib/bundle/open/bundle.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { checkSigned } from '../../../lib/bundle/open/signedBundle.ts';
import { pushBundle } from '../../../lib/bundle/push.ts';
import { serveBundle } from '../../../lib/bundle/serve.ts';
import { verifyBundle } from '../../../lib/bundle/verify.ts';
import { mediaTypes } from '../../../lib/content/oci/descriptor.ts';
import { Directory } from '../../../lib/content/store/directory.ts';
import { planImages, storeImagesOf } from '../../../lib/node/images/loadPlan.ts';
import { withoutExtraImages } from '../../../lib/update/record/extraImages.ts';
import { makeBundle, type BundleOptions, type TestBundle } from '../../support/content/bundle.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob } from '../../support/content/layers.ts';
import { makeContext } from '../../support/context.ts';
import { addAttachment, attachmentTag } from '../../support/release/attachments.ts';
import type { ExtraImage } from '../../support/release/extraImage.ts';
import { acceptUnsigned } from '../../support/release/trust.ts';

/** A signed Helm chart. */
function makeChart(): ExtraImage {
  const [registry, repository, tag] = ['quay.io', 'example/chart', '1.0'];
  const contents = new TestContent();
  const [config, layer] = [makeBlob(Buffer.from('{"name":"shop"}')), makeBlob(Buffer.from('a chart'))];
  for (const blob of [config, layer]) contents.addBlob(blob);
  const { digest } = contents.addManifest(
    repository,
    mediaTypes.ociManifest,
    {
      schemaVersion: 2,
      mediaType: mediaTypes.ociManifest,
      config: { mediaType: 'application/vnd.cncf.helm.config.v1+json', digest: config.digest, size: config.size },
      layers: [
        { mediaType: 'application/vnd.cncf.helm.chart.content.v1.tar+gzip', digest: layer.digest, size: layer.size },
      ],
    },
    tag,
  );
  addAttachment(contents, { registry, repository, digest });
  const { content, blobs } = contents;
  const names = { pullspec: `${registry}/${repository}@${digest}`, tagged: `${registry}/${repository}:${tag}` };
  return { digest, ...names, repository, tag, content, blobs, addTo: (into) => contents.addTo(into) };
}

describe('a bundle with an OCI artifact', () => {
  const chart = makeChart();
  let made: TestBundle | undefined;
  afterEach(async () => {
    await made?.remove();
    made = undefined;
  });
  const make = async (options: BundleOptions = {}): Promise<TestBundle> =>
    (made = await makeBundle({ components: ['etcd'], extraImages: [chart], ...options }));
  const open = async (path: string, use: (bundle: Bundle) => Promise<void>): Promise<void> => {
    await using bundle = await openBundle(path, makeContext());
    await use(bundle);
  };

  it('has it with its signature, whole or split', async () => {
    for (const options of [{}, { volumeSize: 100_000 }]) {
      const { path, result } = await make(options);
      expect(result.metadata).to.deep.include({ artifacts: [chart.pullspec], extraImages: [chart.pullspec] });
      await open(path, async (bundle) => {
        const report = await verifyBundle(bundle, { trust: acceptUnsigned }, makeContext());
        expect(report.problems).to.deep.equal([]);
        expect(report.attachmentTags).to.include(attachmentTag(chart.digest));
        const { images } = await inspectBundle(bundle, makeContext());
        expect(images.find(({ name }) => name === chart.pullspec)).to.include({ kind: 'extra' });
      });
      await made?.remove();
    }
  });

  it('is a delta without the content of the base', async () => {
    await using base = await makeBundle({ version: '4.12.3', components: ['etcd'], extraImages: [chart] });
    const { result } = await make({ version: '4.12.4', base: base.path });
    const left = result.metadata.base?.blobs.map(({ digest }) => digest);
    expect(left).to.include([...chart.blobs.keys()].at(1));
  });

  it('serves and pushes it with its signature', async () => {
    const { path, folder } = await make();
    await open(path, async (bundle) => {
      const signed = await checkSigned(bundle, acceptUnsigned, makeContext());
      const store = new Directory(`${folder}/pushed`, 'site/release', {}, makeContext());
      await pushBundle(bundle, signed, store, { concurrency: 2, mountFrom: [] }, makeContext());
      expect(await store.tags()).to.include(attachmentTag(chart.digest));
      expect((await store.resolve(chart.digest)).digest).to.equal(chart.digest);
      const server = await serveBundle(bundle, { host: '127.0.0.1', port: 0 }, makeContext());
      const answer = await fetch(`${server.url}/v2/${chart.repository}/manifests/${attachmentTag(chart.digest)}`, {
        headers: { accept: mediaTypes.ociManifest },
      });
      expect(answer.status).to.equal(200);
      await answer.arrayBuffer();
      await server.close();
    });
  });

  it('loads and pins all images except it, because no image store takes it', async () => {
    const made = await make();
    const { path } = made;
    const context = makeContext();
    await open(path, async (bundle) => {
      const planned = (await planImages(bundle, [], context)).map(({ name }) => name);
      expect(planned).to.have.length(2);
      expect(planned).not.to.include(chart.pullspec);
      expect(context.lines.join('\n')).not.to.include(chart.pullspec);
      expect(storeImagesOf(bundle).map(({ name }) => name)).to.have.members(planned);
      const facts = { digest: chart.digest, metadata: bundle.metadata, signatures: new Map() };
      const spec = { bundle: {}, hold: false, allowExtraImages: [chart.digest] } as const;
      const allowed = withoutExtraImages(facts, { spec });
      expect(allowed.metadata.images).to.have.members(planned);
      expect(allowed.leftOut).to.deep.equal([]);
      const { etcd = '' } = bundle.metadata.components;
      // The list of artifacts is not signed.
      const hidden = { ...bundle.metadata, artifacts: [etcd], extraImages: [etcd] };
      expect(storeImagesOf({ path, metadata: hidden }).map(({ name }) => name)).to.include(etcd);
      const { version, release, components, osImages, previous } = bundle.metadata;
      const first = { version, release, components, osImages, previous, risks: [], bytes: 0 };
      const several = { ...hidden, formatVersion: 2 as const, components: {}, releases: [first] };
      expect(storeImagesOf({ path, metadata: several }).map(({ name }) => name)).to.include(etcd);
    });
    await open(await made.unpack(), async (opened) => {
      const metadata = { ...opened.metadata, artifacts: [] };
      const planned = await planImages({ ...opened, metadata }, [], context);
      expect(planned.map(({ name }) => name)).not.to.include(chart.pullspec);
      expect(context.lines.join('\n')).to.include(`not loaded, because no container images: ${chart.pullspec}`);
    });
  });
});
