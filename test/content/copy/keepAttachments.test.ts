import { generateKeyPairSync, sign } from 'node:crypto';
import { expect } from 'chai';
import { mediaTypes } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/digest.ts';
import { openWorkshop, runProgram, type Workshop } from '../../support/content/creation.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { Mirroring } from '../../support/release/mirroring.ts';

/** A manifest that a registry answered. */
interface Answered {
  readonly layers?: { digest: Digest; annotations?: Record<string, string> }[];
  readonly manifests?: { digest: Digest }[];
}

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
          ...{ schemaVersion: 2, mediaType: mediaTypes.ociManifest },
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
});
