import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { mediaTypes, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { Tokens } from '../../../lib/content/registry/auth/tokens.ts';
import { Registry } from '../../../lib/content/registry/registry.ts';
import { Transport } from '../../../lib/content/registry/transport.ts';
import type { UploadOptions } from '../../../lib/content/registry/upload.ts';
import type { Context } from '../../../lib/context.ts';
import { emptyContent, repositoryOf, type RegistryContent } from '../../fakes/registry/content.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { pushRelease } from '../../support/content/push.ts';
import { makeContext } from '../../support/context.ts';
import { startDockerRegistry, type DockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { contentOf, describeStore, makeSample } from '../store/contract.ts';

const open: Connections[] = [];

async function openRegistry(
  host: string,
  repository: string,
  context: Context,
  options?: UploadOptions,
): Promise<Registry> {
  const connections = new Connections({ certificates: new Certificates({ insecure: true, folders: [] }) });
  open.push(connections);
  const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
  const tokens = new Tokens(credentials, connections, context, { insecure: true });
  const transport = new Transport(connections, tokens, context, { insecure: true, baseDelay: 1 });
  return new Registry({ registry: host, repository }, transport, context, options);
}

function blobOf(bytes: Buffer): Descriptor {
  return { mediaType: 'application/octet-stream', digest: digestOf(bytes), size: bytes.length };
}

function of(bytes: Buffer): () => Promise<Readable> {
  return () => Promise.resolve(Readable.from([bytes]));
}

/** Returns the content of a contract test in the form for pushRelease. */
function releaseOf(content: RegistryContent): Parameters<typeof pushRelease>[0] {
  const blobs = [...content.blobs].map(([digest, body]) => {
    if (!Buffer.isBuffer(body)) throw new Error('the sample has generated bodies');
    return [digest as Digest, { digest: digest as Digest, size: body.length, read: () => body }] as const;
  });
  return { content, blobs: new Map(blobs) };
}

describe('Registry', () => {
  afterEach(() => {
    for (const connections of open.splice(0)) connections.close();
  });

  describe('at a registry in this process', () => {
    describeStore('Registry', async (content, repository, context) => {
      const server = await startRegistry({ content, tagsPerPage: 1, relativeLocations: true });
      return {
        store: await openRegistry(server.host, repository, context),
        damage: (digest, change) => {
          content.blobs.set(digest, change(content.blobs.get(digest) as Buffer));
          return Promise.resolve();
        },
        remove: () => server.stop(),
      };
    });
  });

  describe('at a docker-registry', function () {
    requirePeer(this, 'docker-registry');

    describeStore('Registry', async (content, repository, context) => {
      const server = await startDockerRegistry();
      await pushRelease(releaseOf(content), server.url);
      return {
        store: await openRegistry(server.host, repository, context),
        damage: async (digest, change) => {
          const hex = digest.slice('sha256:'.length);
          const file = join(server.storage, 'docker/registry/v2/blobs/sha256', hex.slice(0, 2), hex, 'data');
          await writeFile(file, change(await readFile(file)));
        },
        remove: () => server.stop(),
      };
    });

    describe('with a few repositories', () => {
      let server: DockerRegistry;
      const context = makeContext();
      before(async () => {
        server = await startDockerRegistry();
      });
      after(() => server.stop());

      it('mounts a blob from another repository, once it is there', async () => {
        const bytes = Buffer.from('mounted');
        const [from, to] = await Promise.all(
          ['a/from', 'a/to'].map((name) => openRegistry(server.host, name, context)),
        );
        if (!from || !to) throw new Error('no registries');
        expect(await to.mount(blobOf(bytes), 'a/from')).to.equal(false);
        await from.push(blobOf(bytes), of(bytes));
        expect(await to.exists(blobOf(bytes))).to.equal(false);
        expect(await to.mount(blobOf(bytes), 'a/from')).to.equal(true);
        expect((await buffer(await to.fetch(blobOf(bytes)))).equals(bytes)).to.equal(true);
      });

      it('uploads in chunks', async () => {
        const bytes = Buffer.alloc(1_000_000, 'chunks of some bytes ');
        const registry = await openRegistry(server.host, 'a/chunks', context, { chunked: true, chunkSize: 300_000 });
        await registry.push(blobOf(bytes), of(bytes));
        expect((await buffer(await registry.fetch(blobOf(bytes)))).equals(bytes)).to.equal(true);
      });

      it('names the blob that a manifest needs and the repository lacks', async () => {
        const sample = makeSample('a/incomplete');
        const registry = await openRegistry(server.host, 'a/incomplete', context);
        const manifests = (await contentOf(sample)).filter(
          ({ descriptor }) => descriptor.digest === sample.image.digest,
        );
        for (const { descriptor, bytes } of manifests) {
          const error = await failureOf(registry.push(descriptor, of(bytes)), 'not-found');
          expect(error.message)
            .to.match(/blob unknown to registry/)
            .and.contain(sample.layer.digest);
        }
      });
    });
  });

  describe('with a registry of its own kind', () => {
    const context = makeContext();
    let server: TestRegistry;
    let registry: Registry;
    beforeEach(async () => {
      server = await startRegistry();
      registry = await openRegistry(server.host, 'a/b', context);
    });
    afterEach(() => server.stop());

    const addImage = () => {
      const sample = makeSample('a/b');
      server.content.blobs = sample.content.blobs;
      server.content.repositories = sample.content.repositories;
      return sample;
    };

    it('computes the digest of a manifest if a registry does not send it', async () => {
      const { image } = addImage();
      server.fault(/./, { headers: { 'docker-content-digest': null } });
      expect(await registry.resolve('1.0-x86_64')).to.deep.include({ digest: image.digest, size: image.size });
    });

    it('does not accept another digest from a registry', async () => {
      const { image, list } = addImage();
      server.fault(/./, { headers: { 'docker-content-digest': list.digest } });
      expect((await registry.resolve(image.digest)).digest).to.equal(image.digest);
    });

    it('reads the media type from a manifest if a registry sends no valid one', async () => {
      const { image } = addImage();
      server.fault(/./, { headers: { 'content-type': 'text/plain' } });
      expect((await registry.resolve('1.0-x86_64')).mediaType).to.equal(image.mediaType);
    });

    it('gets a manifest if a registry does not support HEAD', async () => {
      const { image } = addImage();
      server.fault(/^HEAD/, { answer: { status: 405 } });
      expect((await registry.resolve('1.0-x86_64')).digest).to.equal(image.digest);
    });

    it('refuses an image of schema 1', async () => {
      addImage();
      const type = 'application/vnd.docker.distribution.manifest.v1+prettyjws';
      server.fault(/./, { headers: { 'content-type': type } });
      expect((await failureOf(registry.resolve('1.0-x86_64'), 'invalid-manifest')).message).to.contain('schema 1');
    });

    it('refuses a manifest that is larger than manifests may be', async () => {
      repositoryOf(server.content, 'a/b').manifests.set('sha256:big', {
        mediaType: mediaTypes.ociManifest,
        bytes: Buffer.alloc(5_000_000, ' '),
      });
      repositoryOf(server.content, 'a/b').tags.set('big', 'sha256:big');
      await failureOf(registry.resolve('big'), 'too-large');
      server.fault(/./, { chunked: true });
      await failureOf(registry.resolve('big'), 'too-large');
    });

    it('puts a tag that leads elsewhere, and not one that is there already', async () => {
      const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.ociManifest, layers: [] }));
      const manifest = { mediaType: mediaTypes.ociManifest, digest: digestOf(bytes), size: bytes.length };
      await registry.push(manifest, of(bytes));
      repositoryOf(server.content, 'a/b').tags.set('t', 'sha256:other');
      // Another run, which has not pushed the manifest itself.
      const again = await openRegistry(server.host, 'a/b', makeContext());
      await again.tag(manifest, 't');
      expect(repositoryOf(server.content, 'a/b').tags.get('t')).to.equal(manifest.digest);
      const from = server.requests.length;
      await (await openRegistry(server.host, 'a/b', makeContext())).tag(manifest, 't');
      expect(server.requests.slice(from).map(({ method }) => method)).to.deep.equal(['HEAD']);
    });

    it('takes content for present if HEAD states another length, and the content is right', async () => {
      const { image } = addImage();
      const blob = Buffer.from('a blob of the registry');
      server.content.blobs.set(blobOf(blob).digest, blob);
      for (const length of ['0', '7']) {
        server.fault(/^HEAD/, { headers: { 'content-length': length } });
        expect(await registry.exists(image)).to.equal(true);
        expect(await registry.exists(blobOf(blob))).to.equal(true);
        expect(await registry.exists({ ...blobOf(blob), size: 3 })).to.equal(false);
        server.clearFaults();
      }
    });

    it('takes an immutable tag for done if it is right, also without a digest in HEAD', async () => {
      const { image, list } = addImage();
      await registry.tag(image, 'kept');
      const again = await openRegistry(server.host, 'a/b', context);
      server.fault(/^PUT .*kept/, { answer: { status: 400, body: '{"errors":[{"code":"TAG_INVALID"}]}' } });
      for (const head of [{ headers: { 'docker-content-digest': '' } }, { answer: { status: 405 } }]) {
        server.fault(/^HEAD/, head);
        await again.tag(image, 'kept');
      }
      const { message } = await failureOf(again.tag(list, 'kept'), 'conflict');
      expect(message).to.contain(image.digest).and.to.contain(list.digest);
    });

    it('asks once for tags that it can do without, and continues after any answer', async () => {
      for (const answer of [{ status: 500 }, { status: 403 }, { status: 200, body: '<html>' }]) {
        server.requests.length = 0;
        server.fault(/tags/, { answer });
        expect(await registry.knownTags(3)).to.equal(undefined);
        expect(server.requests.filter(({ path }) => path.includes('tags'))).to.have.length(1);
      }
      server.clearFaults();
      expect(await registry.tags()).to.deep.equal([]);
    });

    it('mounts a blob, and cancels the upload that a registry begins instead', async () => {
      const bytes = Buffer.from('to mount');
      const other = await openRegistry(server.host, 'c/d', context);
      await other.push(blobOf(bytes), of(bytes));
      server.fault(/mount=/, { ignoreMount: true }, { times: 1 });
      expect(await registry.mount(blobOf(bytes), 'c/d')).to.equal(false);
      expect(server.uploads.count).to.equal(0);
      expect(await registry.mount(blobOf(bytes), 'c/d')).to.equal(true);
    });

    it('takes any refusal of a mount for a no, and does not ask for that repository again', async () => {
      for (const [index, status] of [400, 403, 404, 405, 429, 500, 503].entries()) {
        server.fault(/mount=/, { answer: { status } });
        expect(await registry.mount(blobOf(Buffer.from('x')), `c/${index}`), String(status)).to.equal(false);
        expect(await registry.mount(blobOf(Buffer.from('y')), `c/${index}`)).to.equal(false);
      }
      expect(server.requests.filter(({ query }) => query.has('mount'))).to.have.length(7);
    });

    it('does not fetch a manifest again to tag it', async () => {
      const sample = makeSample('a/b');
      for (const { descriptor, bytes } of await contentOf(sample)) await registry.push(descriptor, of(bytes));
      await registry.tag(sample.image, 'one');
      expect(server.requests.some(({ method }) => method === 'GET')).to.equal(false);
      expect(repositoryOf(server.content, 'a/b').tags.get('one')).to.equal(sample.image.digest);
    });

    it('tags a manifest that another run pushed', async () => {
      const { image } = addImage();
      await registry.tag(image, 'two');
      expect(repositoryOf(server.content, 'a/b').tags.get('two')).to.equal(image.digest);
    });

    it('reports a registry that stores a manifest under another digest', async () => {
      const { image, list } = addImage();
      server.fault(/^PUT/, { headers: { 'docker-content-digest': list.digest } });
      await failureOf(registry.tag(image, 'x'), 'digest-mismatch');
    });

    it('takes a blob of another size for absent', async () => {
      const bytes = Buffer.from('short');
      server.content.blobs.set(blobOf(bytes).digest, bytes);
      expect(await registry.exists({ ...blobOf(bytes), size: 6 })).to.equal(false);
      expect(await registry.exists(blobOf(bytes))).to.equal(true);
      // The body of the error has the size of the blob.
      server.fault(/^HEAD/, { answer: { status: 404, body: 'error' } });
      expect(await registry.exists(blobOf(bytes))).to.equal(false);
    });

    it('reads manifests, and treats blobs and tags as missing, if a registry does not support HEAD', async () => {
      const { image } = addImage();
      const bytes = Buffer.from('blob');
      server.content.blobs.set(blobOf(bytes).digest, bytes);
      const absent = { ...image, digest: digestOf('another image') };
      for (const status of [405, 501]) {
        server.fault(/^HEAD/, { answer: { status } }, { times: 4 });
        const fresh = await openRegistry(server.host, 'a/b', context);
        await fresh.tag(image, `for-${status}`);
        const found = await Promise.all([image, absent, blobOf(bytes)].map((each) => fresh.exists(each)));
        expect(found).to.deep.equal([true, false, false]);
        expect(repositoryOf(server.content, 'a/b').tags.get(`for-${status}`)).to.equal(image.digest);
      }
    });

    it('hands the bytes of a blob on as they come', async () => {
      const bytes = Buffer.alloc(500_000, 'downloaded ');
      server.content.blobs.set(blobOf(bytes).digest, bytes);
      const chunks: Buffer[] = [];
      await registry.download(blobOf(bytes), 100_000, (chunk) => chunks.push(Buffer.from(chunk)));
      expect(Buffer.concat(chunks).equals(bytes.subarray(100_000))).to.equal(true);
    });
  });

  it('requests push access if a repository that does not exist cannot be read', async () => {
    const context = makeContext();
    const content = emptyContent();
    await using server = await startRegistry({ content });
    const registry = await openRegistry(server.host, 'new/repository', context);
    server.fault(/^HEAD/, { answer: { status: 403 } }, { times: 1 });
    expect(await registry.exists(blobOf(Buffer.from('x')))).to.equal(false);
  });
});
