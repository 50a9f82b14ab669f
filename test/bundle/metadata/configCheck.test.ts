import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { catalogSourceManifest } from '../../../lib/config/catalogSource.ts';
import { formatManifest } from '../../../lib/config/manifest.ts';
import { mirrorSetManifest } from '../../../lib/config/mirrorSets.ts';
import { signatureConfigMap } from '../../../lib/config/signatures.ts';
import { updateServiceManifests } from '../../../lib/config/updateService.ts';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { type TestBundle } from '../../support/content/bundle.ts';
import { kubernetesObject, managed, useHostileBundles } from '../../support/content/hostileBundle.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeSigningKey, signDigest } from '../../support/release/signing.ts';

/**
 * Additions to a release that Red Hat signed, by the owner of a USB drive, listed by their effect. Every command must
 * refuse each of them.
 */
describe('the configuration in a hostile bundle', () => {
  let bundle: TestBundle;
  let other: TestBundle;
  const { made, change, check, verify, inspect, refuse } = useHostileBundles();
  before(() => {
    ({ bundle, other } = made());
  });
  const signaturePath = ({ release }: TestBundle): string =>
    `config/signature/sha256/${hexOf(release.digest).slice(0, 16)}.yaml`;

  describe('with configuration that would be applied to a cluster', () => {
    const binding = kubernetesObject('ClusterRoleBinding', { name: 'x' });
    const objects: Record<string, string> = {
      'config/binding.yaml': binding,
      'config/mirrors/set.json': binding,
      'config/update-service/x.yaml': kubernetesObject('ConfigMap', { name: 'ca', namespace: 'openshift-config' }),
      'config/namespace.yaml': kubernetesObject('Namespace', { name: 'x' }),
      'config/labelled.yaml': kubernetesObject(
        'ConfigMap',
        { ...managed, labels: { 'release.openshift.io/verification-signatures': '' } },
        { data: { a: 'b' } },
      ),
      'config/allow.yaml': kubernetesObject('UpgradeBundle', { name: 'x' }),
      'config/mirrors/imagedigestmirrorset.yaml': formatManifest(
        mirrorSetManifest('idms', [{ source: 'registry.redhat.io/ubi9', mirrors: ['evil.example.com/ubi9'] }]).object,
      ),
      'config/catalogs/catalogsource-evil.yaml': formatManifest(
        catalogSourceManifest('evil', `evil.example.com/index@sha256:${'0'.repeat(64)}`).object,
      ),
      'config/README': 'run me',
      'config/run.sh': '#!/bin/sh',
    };
    for (const [path, text] of Object.entries(objects)) {
      it(`refuses ${path} in a tar, and inspect notes it`, async () => {
        const hostile = await change(({ files }) => files.set(path, Buffer.from(text)));
        await refuse(hostile, path);
        expect((await inspect(hostile)).join('\n')).to.contain(path);
      });
    }

    it('refuses each of them in a mirror directory, with and without metadata.json', async () => {
      const root = await bundle.unpack();
      const kept = Object.entries(objects).filter(([path]) => /\.(?:yaml|json)$/.test(path));
      for (const [path, text] of kept) {
        await mkdir(dirname(join(root, path)), { recursive: true });
        await writeFile(join(root, path), text);
      }
      const paths = kept.map(([path]) => path);
      const expectRefused = async (): Promise<void> => {
        await failureOf(check(root), 'invalid-bundle');
        const messages = (await verify(root)).problems.map(({ message }) => message);
        for (const path of paths) expect(messages.join('\n')).to.contain(path);
      };
      await expectRefused();
      await rm(join(root, 'metadata.json'));
      await expectRefused();
    });

    it('refuses a second document after a signature', async () => {
      const hostile = await change(({ files }) => {
        const path = signaturePath(bundle);
        files.set(path, Buffer.from(`${String(files.get(path))}---\n${binding}\n`));
      });
      await refuse(hostile, signaturePath(bundle));
    });

    it('refuses a signature that says another version than the release', async () => {
      const hostile = await change(({ files }) => {
        const path = signaturePath(bundle);
        files.set(path, Buffer.from(String(files.get(path)).replace('4.12.4', '4.12.9')));
      });
      await refuse(hostile, signaturePath(bundle));
    });

    it('refuses a signature by an unknown key beside a good one', async () => {
      const stranger = await signDigest(await makeSigningKey(), bundle.release.digest);
      const good = await signDigest(bundle.key, bundle.release.digest);
      const details = { version: '4.12.4', signer: bundle.key.fingerprint };
      const { path, object } = signatureConfigMap(bundle.release.digest, [good, stranger], details);
      const hostile = await change(({ files }) => files.set(path, Buffer.from(formatManifest(object))));
      await refuse(hostile, path);
    });

    it('takes signatures of other releases from a mirror directory only if a trusted key made them', async () => {
      const root = await bundle.unpack();
      const details = { version: '4.12.5', signer: other.key.fingerprint };
      const write = async (signature: Buffer): Promise<void> => {
        const { path, object } = signatureConfigMap(other.release.digest, [signature], details);
        await writeFile(join(root, path), formatManifest(object));
      };
      await write(await signDigest(bundle.key, other.release.digest));
      expect((await check(root)).config.signatures).to.have.length(2);
      expect((await verify(root)).problems).to.deep.equal([]);
      await write(await signDigest(await makeSigningKey(), other.release.digest));
      await refuse(root, signaturePath(other));
    });

    it('refuses a mirror set, an update service or authorities that say more than mirroring writes', async () => {
      const source = `quay.io/${bundle.release.componentRepository}`;
      const set = mirrorSetManifest('idms', [{ source, mirrors: ['registry.test/release'] }]);
      const [service] = updateServiceManifests({
        releases: 'registry.test/release',
        graphDataImage: `registry.test/release@${bundle.release.digest}`,
      });
      const authority = kubernetesObject('ConfigMap', { name: 'user-ca-bundle', namespace: 'openshift-config' });
      for (const [path, text] of [
        [set.path, `${formatManifest(set.object)}status: {}\n`],
        [set.path, formatManifest(set.object).replace('release-mirror', 'other')],
        [service?.path ?? '', formatManifest(service?.object ?? set.object).replace('replicas: 2', 'replicas: 3')],
        ['config/update-service/registry-ca.yaml', authority],
      ] as const) {
        const root = await bundle.unpack();
        await mkdir(dirname(join(root, path)), { recursive: true });
        await writeFile(join(root, path), text);
        await refuse(root, path);
      }
    });
  });
});
