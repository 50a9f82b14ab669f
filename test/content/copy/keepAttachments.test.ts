import { generateKeyPairSync, sign } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import type { Image } from '../../../lib/content/copy/copy.ts';
import { keepAttachments } from '../../../lib/content/copy/keepAttachments.ts';
import { mediaTypes, parseManifest, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { Directory } from '../../../lib/content/store/directory.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { openWorkshop, runProgram, type Workshop } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { Mirroring } from '../../support/release/mirroring.ts';

/** A manifest that a registry answered. */
interface Answered {
  readonly layers?: { digest: Digest; annotations?: Record<string, string> }[];
  readonly manifests?: { digest: Digest }[];
}

describe('keepAttachments', () => {
  let folder: string;
  let destination: Directory;
  beforeEach(async () => {
    folder = await makeFolder();
    destination = new Directory(folder, 'a/b', {}, makeContext());
  });
  afterEach(() => removeFolder(folder));

  const tag = attachmentTag(digestOf('image'));
  const layerOf = (text: string) => ({ mediaType: 'text/plain', digest: digestOf(text), size: text.length });
  const config = { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digestOf('{}'), size: 2 };
  const describeBytes = (mediaType: string, bytes: Buffer): Descriptor => {
    return { mediaType, digest: digestOf(bytes), size: bytes.length };
  };
  const signatureOf = (text: string): Buffer =>
    Buffer.from(
      JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.ociManifest, config, layers: [layerOf(text)] }),
    );
  const attachment = (name = tag): Image => {
    const bytes = signatureOf('ours');
    const root = describeBytes(mediaTypes.ociManifest, bytes);
    const manifests = new Map([[root.digest, { descriptor: root, bytes, manifest: parseManifest(bytes, 'ours') }]]);
    return { name: 'ours', source: destination, root, manifests, tags: [name], isAttachment: true };
  };
  const store = async (mediaType: string, bytes: Buffer, name = tag): Promise<void> => {
    const descriptor = describeBytes(mediaType, bytes);
    await destination.push(descriptor, () => Promise.resolve(Readable.from([bytes])));
    await destination.tag(descriptor, name);
  };
  const storeLayer = (text: string): Promise<void> =>
    destination.push(layerOf(text), () => Promise.resolve(Readable.from([Buffer.from(text)])));

  it('joins a signature with another one of the destination, which comes first', async () => {
    await storeLayer('theirs');
    await store(mediaTypes.ociManifest, signatureOf('theirs'));
    const [joined] = await keepAttachments([attachment()], destination);
    const { layers } = JSON.parse(String(joined?.manifests.get(joined.root.digest)?.bytes)) as Answered;
    expect(layers?.map(({ digest }) => digest)).to.deep.equal([digestOf('theirs'), digestOf('ours')]);
  });

  it('leaves out a signature that the destination has', async () => {
    await storeLayer('ours');
    await storeLayer('theirs');
    const both = JSON.parse(String(signatureOf('ours'))) as { layers: object[] };
    both.layers.push(layerOf('theirs'));
    await store(mediaTypes.ociManifest, Buffer.from(JSON.stringify(both)));
    expect(await keepAttachments([attachment()], destination)).to.deep.equal([]);
  });

  it('replaces attachments that it cannot join: a list, and a signature without content', async () => {
    await storeLayer('theirs');
    const list = { schemaVersion: 2, mediaType: mediaTypes.ociIndex, manifests: [] };
    await store(mediaTypes.ociIndex, Buffer.from(JSON.stringify(list)));
    expect(await keepAttachments([attachment()], destination)).to.deep.equal([attachment()]);
    await store(mediaTypes.ociManifest, signatureOf('gone'));
    expect(await keepAttachments([attachment()], destination)).to.deep.equal([attachment()]);
  });

  it('leaves an image alone whose tag is not one of an attachment', async () => {
    await storeLayer('theirs');
    await store(mediaTypes.ociManifest, signatureOf('theirs'), '1.0');
    const images = [attachment('1.0'), attachment('other')];
    expect(await keepAttachments(images, destination)).to.deep.equal(images);
  });
});

describe('attachments that a target already has', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  const site = useDockerRegistry();

  before(async () => {
    workshop = await openWorkshop({ release: { supplements: true } });
    mirroring = new Mirroring(workshop);
  });
  after(() => workshop.close());

  const put = async (path: string, type: string, body: Buffer): Promise<void> => {
    const reply = await fetch(`${site.url}/v2/${path}`, {
      method: 'PUT',
      body: new Uint8Array(body),
      headers: { 'Content-Type': type },
    });
    expect(reply.status, await reply.text()).to.equal(201);
  };
  const upload = async (repository: string, body: Buffer): Promise<{ digest: Digest; size: number }> => {
    const begun = await fetch(`${site.url}/v2/${repository}/blobs/uploads/`, { method: 'POST' });
    const url = new URL(begun.headers.get('location') ?? '', site.url);
    url.searchParams.set('digest', digestOf(body));
    expect((await fetch(url, { method: 'PUT', body: new Uint8Array(body) })).status).to.equal(201);
    return { digest: digestOf(body), size: body.length };
  };
  const read = async (repository: string, tag: string): Promise<Answered> => {
    const headers = { Accept: `${mediaTypes.ociManifest}, ${mediaTypes.ociIndex}` };
    return (await (await fetch(`${site.url}/v2/${repository}/manifests/${tag}`, { headers })).json()) as Answered;
  };
  /** Puts a signature and a referrer of the site’s own at a repository. */
  const signAtSite = async (repository: string, digest: Digest): Promise<{ signature: Digest; referrer: Digest }> => {
    const { privateKey } = generateKeyPairSync('ed25519');
    const statement = Buffer.from(
      JSON.stringify({ critical: { image: { 'docker-manifest-digest': digest } }, by: 'site' }),
    );
    const layer = await upload(repository, statement);
    const config = await upload(repository, Buffer.from('{}'));
    const annotations = { 'dev.cosignproject.cosign/signature': sign(null, statement, privateKey).toString('base64') };
    const manifest = (more: object) =>
      Buffer.from(
        JSON.stringify({
          schemaVersion: 2,
          mediaType: mediaTypes.ociManifest,
          config: { mediaType: 'application/vnd.oci.image.config.v1+json', ...config },
          layers: [{ mediaType: 'application/vnd.dev.cosign.simplesigning.v1+json', ...layer, annotations }],
          ...more,
        }),
      );
    await put(`${repository}/manifests/${attachmentTag(digest)}`, mediaTypes.ociManifest, manifest({}));
    const referrer = manifest({ subject: { mediaType: mediaTypes.dockerManifest, digest, size: 1 } });
    await put(`${repository}/manifests/${digestOf(referrer)}`, mediaTypes.ociManifest, referrer);
    const manifests = [{ mediaType: mediaTypes.ociManifest, digest: digestOf(referrer), size: referrer.length }];
    const list = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.ociIndex, manifests }));
    await put(`${repository}/manifests/${attachmentTag(digest).replace('.sig', '')}`, mediaTypes.ociIndex, list);
    return { signature: layer.digest, referrer: digestOf(referrer) };
  };

  for (const way of ['mirroring', 'push']) {
    it(`keep their signatures and referrers in ${way}, and get those of the release once`, async () => {
      const repository = `${way}/release`;
      const { digest } = workshop.release;
      const run = async (): Promise<void> => {
        if (way === 'mirroring') {
          await mirroring.succeed([`--to=${site.host}/${repository}`]);
          return;
        }
        const bundle = await workshop.make();
        const trust = ['--insecure', `--trust-fingerprint=${workshop.key.fingerprint}`];
        const { code, stderr } = await runProgram(workshop.folder, 'push', [
          bundle,
          `--to=${site.host}/${repository}`,
          ...trust,
        ]);
        expect(code, stderr).to.equal(0);
      };
      const own = await signAtSite(repository, digest);
      await run();
      const signatures = (await read(repository, attachmentTag(digest))).layers ?? [];
      expect(signatures).to.have.length(2);
      expect(signatures[0]?.digest).to.equal(own.signature);
      const referrers = await read(repository, attachmentTag(digest).replace('.sig', ''));
      expect(referrers.manifests).to.have.length(2);
      expect(referrers.manifests?.[0]?.digest).to.equal(own.referrer);
      // skopeo reads both, so that the manifest and its configuration are as cosign writes them.
      const copy = ['copy', '--src-tls-verify=false', `docker://${site.host}/${repository}:${attachmentTag(digest)}`];
      await runSuccessfully('skopeo', [...copy, `dir:${mirroring.path(`${way}-sig`)}`]);
      await run();
      expect((await read(repository, attachmentTag(digest))).layers).to.deep.equal(signatures);
    });
  }

  it('are looked for after the login created the repository, as that of Quay does', async () => {
    const user = { username: 'ci', password: 'a:b' };
    const created = new Set<string>();
    const allow = (_user: string | undefined, repository: string, action: string): boolean =>
      (action === 'push' ? created.add(repository) : created).has(repository);
    await using quay = await startRegistry({ bearer: { ...user, allow } });
    await writeFile(mirroring.path('auth.json'), JSON.stringify({ auths: { [quay.host]: user } }));
    await mirroring.succeed([`--to=${quay.host}/\${component}/release`, '-a', 'auth.json']);
    expect(quay.content.repositories.size).to.be.above(2);
  });
});
