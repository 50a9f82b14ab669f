import { join } from 'node:path';
import { expect } from 'chai';
import { gatherContents } from '../../lib/bundle/create/contents.ts';
import { inspectBundle } from '../../lib/bundle/inspect/inspect.ts';
import type { Bundle } from '../../lib/bundle/open/bundle.ts';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { checkSigned, type SignedBundle } from '../../lib/bundle/open/signedBundle.ts';
import { pushBundle } from '../../lib/bundle/push.ts';
import { serveBundle } from '../../lib/bundle/serve.ts';
import { verifyBundle, type VerifyReport } from '../../lib/bundle/verify.ts';
import { mediaTypes, sumSizes } from '../../lib/content/oci/descriptor.ts';
import { digestOf, hexOf, type Digest } from '../../lib/content/oci/reference.ts';
import { Credentials } from '../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../lib/content/registry/mirrors.ts';
import { Registries } from '../../lib/content/registry/registries.ts';
import { startRegistry } from '../fakes/registry/registry.ts';
import { repack } from '../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { makeFileLayer } from '../support/content/layers.ts';
import { makeContext } from '../support/context.ts';
import { acceptUnsigned } from '../support/release/trust.ts';

const folder = 'v2/openshift/release';
const imageConfig = 'application/vnd.oci.image.config.v1+json';
const emptyConfig = 'application/vnd.oci.empty.v1+json';
const signed = 'application/vnd.dev.cosign.simplesigning.v1+json';
const tarLayer = 'application/vnd.oci.image.layer.v1.tar+gzip';
const program = makeFileLayer(new Map([['bin/sh', 'a program']]));

/** Content by its digest, and the manifests among it. The last manifest gets the tag. */
interface Hidden {
  readonly blobs: ReadonlyMap<Digest, Buffer>;
  readonly manifests: ReadonlyMap<Digest, Buffer>;
}

function makeHidden(configType: string, layerType: string | undefined, layer: Buffer, more: object = {}): Hidden {
  const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', rootfs: { diff_ids: [] } }));
  const describe = (bytes: Buffer) => ({ digest: digestOf(bytes), size: bytes.length });
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: mediaTypes.ociManifest,
      config: { mediaType: configType, ...describe(config) },
      layers: [{ ...(layerType !== undefined && { mediaType: layerType }), ...describe(layer) }],
      ...more,
    }),
  );
  const blobs = new Map([config, layer].map((bytes) => [digestOf(bytes), bytes]));
  return { blobs, manifests: new Map([[digestOf(manifest), manifest]]) };
}

function makeList({ blobs, manifests }: Hidden): Hidden {
  const entries = [...manifests].map(([digest, { length: size }]) => ({
    mediaType: mediaTypes.ociManifest,
    digest,
    size,
  }));
  const list = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.ociIndex, manifests: entries }));
  return { blobs, manifests: new Map([...manifests, [digestOf(list), list]]) };
}

describe('an image under the tag of an attachment', () => {
  let made: TestBundle;
  let copies = 0;
  before(async () => {
    made = await makeBundle({ components: 2 });
  });
  after(() => made.remove());

  const gzip = program.read();
  const cases: Record<string, { suffix: string; hidden: (subject: Digest) => Hidden; isLying?: boolean }> = {
    'an OCI image': { suffix: '.att', hidden: () => makeHidden(imageConfig, tarLayer, gzip) },
    'an image as the signature': { suffix: '.sig', hidden: () => makeHidden(imageConfig, tarLayer, gzip) },
    'a Docker layer': {
      suffix: '.sbom',
      hidden: () => makeHidden(imageConfig, 'application/vnd.docker.image.rootfs.diff.tar.gzip', gzip),
    },
    'a layer of zstd': {
      suffix: '.att',
      hidden: () => makeHidden(imageConfig, 'application/vnd.oci.image.layer.v1.tar+zstd', gzip),
    },
    'a layer without a type': { suffix: '.att', hidden: () => makeHidden(imageConfig, undefined, gzip) },
    'an image without the type of its configuration': {
      suffix: '.att',
      hidden: () => makeHidden(emptyConfig, tarLayer, gzip),
    },
    'a list with an image': { suffix: '.att', hidden: () => makeList(makeHidden(imageConfig, tarLayer, gzip)) },
    'an image that refers to the release': {
      suffix: '',
      hidden: (digest) => makeList(makeHidden(imageConfig, tarLayer, gzip, { subject: { digest } })),
    },
    'an artifact that refers to another image': {
      suffix: '',
      hidden: () => makeList(makeHidden(emptyConfig, signed, Buffer.from('{}'), { subject: { digest: digestOf('') } })),
    },
    'a program with the type of a signature': {
      suffix: '.att',
      hidden: () => makeHidden(imageConfig, signed, gzip),
      isLying: true,
    },
  };

  /** Returns a copy of the bundle with something under the tag of an attachment of its release. */
  async function hide({ blobs, manifests }: Hidden, tag: string): Promise<string> {
    return repack(made.path, join(made.folder, `hidden-${(copies += 1)}.tar`), (bundle) => {
      const { files, metadata } = bundle;
      for (const [digest, bytes] of manifests) files.set(`${folder}/manifests/${digest}`, bytes);
      for (const [digest, bytes] of blobs) files.set(`${folder}/blobs/${digest}`, bytes);
      files.set(`${folder}/manifests/${tag}`, [...manifests.keys()].at(-1) ?? '');
      const more = [...blobs].map(([digest, { length: size }]) => ({ digest, size }));
      bundle.metadata = { ...metadata, blobs: [...metadata.blobs, ...more] };
    });
  }

  async function verify(path: string, requireSignedImages: boolean): Promise<VerifyReport> {
    const trust = {
      keyrings: [made.keyFile],
      fingerprints: [made.key.fingerprint],
      allowUnsigned: false,
      requireSignedImages,
      fetchFile: () => Promise.reject(new Error('nothing should be fetched')),
    };
    await using bundle = await openBundle(path, makeContext());
    return await verifyBundle(bundle, { trust }, makeContext());
  }

  for (const [what, { suffix, hidden, isLying = false }] of Object.entries(cases))
    describe(`that is ${what}`, () => {
      let content: Hidden;
      let tag: string;
      let path: string;
      let bundle: Bundle;
      let release: SignedBundle;
      before(async () => {
        const { digest: subject } = made.release;
        content = hidden(subject);
        tag = `sha256-${hexOf(subject)}${suffix}`;
        path = await hide(content, tag);
        bundle = await openBundle(path, makeContext());
        release = await checkSigned(bundle, acceptUnsigned, makeContext());
      });
      after(() => bundle[Symbol.asyncDispose]());

      for (const requireSignedImages of [false, true])
        it(`is found by verify${requireSignedImages ? ' that requires signed images' : ''}`, async () => {
          const { problems, attachmentTags } = await verify(path, requireSignedImages);
          const tags = problems
            .filter((problem) => problem.subject === 'tag')
            .map(({ kind, what: name }) => [kind, name]);
          expect(tags).to.deep.equal([['unexpected', `${folder}/manifests/${tag}`]]);
          const unexpected = problems.filter(({ kind }) => kind === 'unexpected').map(({ what: name }) => name);
          expect(unexpected).to.include.members([...content.manifests.keys(), ...content.blobs.keys()]);
          expect(attachmentTags).not.to.include(tag);
        });

      it(`is ${isLying ? '' : 'not '}listed by inspect`, async () => {
        const { images } = await inspectBundle(bundle, makeContext());
        const listed = images.flatMap((image) => image.attachments);
        expect(listed.includes(tag)).to.equal(isLying);
      });

      it('is not pushed', async () => {
        const context = makeContext();
        const target = await startRegistry();
        const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
        const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
        await using registries = new Registries({ settings, credentials, mirrors: new MirrorSets() }, context);
        const destination = registries.repository({ registry: target.host, repository: 'site/release' });
        await pushBundle(bundle, release, destination, { concurrency: 2, mountFrom: [] }, context);
        const pushed = target.content.repositories.get('site/release');
        expect([...(pushed?.tags.keys() ?? [])]).not.to.include(tag);
        const manifests: readonly string[] = [...(pushed?.manifests.keys() ?? [])];
        expect(manifests).to.include(made.release.digest);
        for (const digest of content.manifests.keys()) expect(manifests).not.to.include(digest);
        // A list of referrers is made again, without images.
        const warning = `${tag}: left out, because no attachment is an image that can run`;
        if (suffix !== '') expect(context.lines.join('\n')).to.include(warning);
      });

      it(`is ${isLying ? '' : 'not '}served`, async () => {
        const server = await serveBundle(bundle, { host: '127.0.0.1', port: 0, tags: release.tags }, makeContext());
        const { tags } = (await (await fetch(`${server.url}/v2/openshift/release/tags/list`)).json()) as {
          tags: string[];
        };
        await server.close();
        expect(tags.includes(tag)).to.equal(isLying);
      });
    });

  it('is left out when it is read from a registry', async () => {
    const { digest } = made.release;
    const tag = `sha256-${hexOf(digest)}.att`;
    await using bundle = await openBundle(await hide(makeHidden(imageConfig, tarLayer, gzip), tag), makeContext());
    const [registry, repository] = ['quay.io', 'openshift-release-dev/ocp-release'];
    const image = { name: 'release', reference: { registry, repository, digest }, tag: made.release.tag };
    const { tags, notAttached, blobs } = await gatherContents([image], () => bundle.content, makeContext());
    expect([...tags.keys()]).to.deep.equal([made.release.tag, `sha256-${hexOf(digest)}.sig`]);
    expect(notAttached).to.deep.equal([tag]);
    expect(sumSizes([...blobs.values()].map(({ descriptor }) => descriptor))).to.be.greaterThan(0);
    expect([...blobs.keys()]).not.to.include(program.digest);
  });
});
