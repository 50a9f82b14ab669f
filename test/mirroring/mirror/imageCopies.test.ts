import { readdir } from 'node:fs/promises';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { startChangeProxy } from '../../support/changeProxy.ts';
import { openWorkshop, type Workshop, addRelease } from '../../support/content/creation.ts';
import { startDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer } from '../../support/peers.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';
import { Mirroring, listTags, pullWhole } from '../../support/release/mirroring.ts';
import { until } from '../../support/until.ts';

describe('the copies of images', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;
  afterEach(() => workshop.close());

  const open = async (options: Parameters<typeof openWorkshop>[0] = {}): Promise<void> => {
    workshop = await openWorkshop({ ...options, release: { layers: 1, baseLayers: 1, ...options.release } });
    mirroring = new Mirroring(workshop);
  };

  it('mirrors images that clusters refuse by an image policy only if unsigned images are allowed', async () => {
    // The host of the registry, with any port.
    await open({ release: { files: imagePolicyFiles({ scopes: ['*.0.0.1'] }) } });
    const last = [...workshop.release.images.keys()].at(-1) ?? '';
    const message = new RegExp(`1 image has no valid sigstore signature: ${last}`);
    const refused = await mirroring.run(['--to-dir=mirror']);
    expect(refused.code, refused.stderr).to.equal(1);
    expect(refused.stderr).to.match(message).and.contain('Clusters refuse');
    expect(await readdir(workshop.folder)).not.to.include('mirror');

    const { code, stdout, stderr } = await mirroring.run(['--to-dir=mirror', '--allow-unsigned']);
    expect(code, stderr).to.equal(0);
    expect(stderr).to.match(message).and.contain('continuing because unsigned releases are allowed');
    const count = workshop.release.images.size + 1;
    expect(stdout).to.match(
      new RegExp(
        `\nUpdate image: .*\nSigstore: ${count - 1} of ${count} images verified, policy openshift, unknown key`,
      ),
    );

    const args = ['--to-dir=mirror', '--allow-unsigned', '--dry-run', '-o=json'];
    const { sigstore } = JSON.parse(await mirroring.succeed(args)) as { sigstore: Record<string, unknown>[] };
    expect(sigstore).to.have.length(count);
    for (const { name, policy, outcome } of sigstore) {
      expect({ policy, outcome }).to.deep.equal({
        policy: 'openshift',
        outcome: name === last ? 'missing' : 'verified',
      });
    }
  });

  it('does not tag a release if an image of it was removed meanwhile, and mirrors it completely the next time', async function () {
    requirePeer(this, 'docker-registry', 'skopeo');
    const small = { layers: 1, baseLayers: 1, attachments: () => false, components: ['cli', 'etcd'], common: ['etcd'] };
    await open({ release: small });
    const old = await addRelease(workshop, { ...small, version: '4.12.3', seed: 'old' });
    await using site = await startDockerRegistry({ inMemory: true });
    const repository = 'site/release';
    const to = (host = site.host): string => `--to=${host}/${repository}`;
    await mirroring.succeed([to()], old.pullspec);
    const { tag: release, images } = workshop.release;
    const url = `${site.url}/v2/${repository}/manifests`;
    let removed: number | undefined;
    const proxy = await startChangeProxy(site.host, async (method, path) => {
      if (method !== 'PUT' || !path.endsWith(`${release}-cli`)) return;
      await until(async () => (await fetch(`${url}/${release}-etcd`, { method: 'HEAD' })).ok);
      removed = (await fetch(`${url}/${images.get('etcd')?.digest ?? ''}`, { method: 'DELETE' })).status;
    });
    expect(await mirroring.fail([to(proxy.host)])).to.contain('of etcd, and does not have it any more');
    await proxy.stop();
    expect(removed).to.equal(202);
    expect(await listTags(`${site.host}/${repository}`)).not.to.include(release);
    await mirroring.succeed([to()]);
    for (const name of [release, `${release}-etcd`]) {
      await pullWhole(`${site.host}/${repository}:${name}`, mirroring.path(`copy-${name}`));
    }
  });

  it('completes a manifest list of which the registry lacks an image', async () => {
    await open({ release: { arch: 'multi', components: ['etcd'], attachments: () => false } });
    await using lax = await startRegistry();
    const mirror = (): Promise<string> => mirroring.succeed([`--to=${lax.host}/site/release`]);
    await mirror();
    const [child = digestOf('')] = workshop.release.children;
    const manifests = lax.content.repositories.get('site/release')?.manifests as Map<string, object> | undefined;
    expect(manifests?.delete(child)).to.equal(true);
    await mirror();
    expect(manifests?.has(child)).to.equal(true);
  });
});
