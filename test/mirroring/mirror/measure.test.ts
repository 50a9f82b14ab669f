import { tmpdir } from 'node:os';
import { expect } from 'chai';
import { mirrorSetManifest } from '../../../lib/config/mirrorSets.ts';
import { mediaTypes, parseManifest } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { Directory } from '../../../lib/content/store/directory.ts';
import type { MirrorGroup } from '../../../lib/mirroring/mirror/destination.ts';
import { checkDirectorySpace, checkRights } from '../../../lib/mirroring/mirror/measure.ts';
import type { Attempt } from '../../fakes/kubernetes/apiAccess.ts';
import { type StartedCluster, startCluster } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('checkDirectorySpace', () => {
  const context = makeContext();
  const root = tmpdir();
  const place = { kind: 'directory', root, repository: 'nowhere/release' } as const;

  const groupOf = (size: number): MirrorGroup => {
    const content = { mediaType: 'application/octet-stream', digest: digestOf(Buffer.from('absent')), size };
    const text = { schemaVersion: 2, mediaType: mediaTypes.ociManifest, config: content, layers: [content] };
    const bytes = Buffer.from(JSON.stringify(text));
    const descriptor = { mediaType: mediaTypes.ociManifest, digest: digestOf(bytes), size: bytes.length };
    const stored = { descriptor, bytes, manifest: parseManifest(bytes, 'test') };
    const source = new Directory(root, place.repository, {}, context);
    const image = { name: 'release', digest: descriptor.digest, source, target: { place } };
    const manifests = new Map([[descriptor.digest, stored]]);
    return {
      place,
      images: [{ image, graph: { root: descriptor, manifests, attachments: new Map(), notAttached: [] } }],
    };
  };

  it('finds before the copy that a mirror directory has no space, with both sizes', async () => {
    await checkDirectorySpace([groupOf(1000)], context);
    const { message } = await failureOf(checkDirectorySpace([groupOf(2 ** 52)], context), 'disk-full');
    expect(message).to.match(/needs 4\.0 PiB more, and .* has [\d.]+ [MGT]iB free/);
  });
});

describe('checkRights', () => {
  const manifest = mirrorSetManifest('idms', [{ source: 'quay.io/a/b', mirrors: ['r.test/a/b'] }]);
  let forbidden = '';
  let connected: StartedCluster;
  before(async () => {
    const allow = ({ verb, resource }: Attempt): boolean => `${verb} ${resource}` !== forbidden;
    connected = await startCluster({ openshift: '4.14.3', tokens: new Map([['t', 'bob']]), allow });
  });
  after(() => connected.close());
  const check = (right: string, manifests = [manifest]): Promise<void> => {
    forbidden = right;
    return checkRights(connected.cluster, manifests, { overwrite: true }, connected.context);
  };

  it('names each right that the user lacks', async () => {
    for (const verb of ['create', 'get']) {
      const { message } = await failureOf(check(`${verb} imagedigestmirrorsets`), 'denied');
      expect(message).to.match(new RegExp(`does not allow this user to ${verb} imagedigestmirrorset/release-mirror-`));
    }
    connected.server.put({ ...manifest.object, spec: { imageDigestMirrors: [] } });
    const { message } = await failureOf(check('update imagedigestmirrorsets'), 'denied');
    expect(message).to.contain('to update imagedigestmirrorset/release-mirror-');
  });

  it('needs no right for an object that stays as it is', async () => {
    connected.server.put({ ...manifest.object });
    await check('update imagedigestmirrorsets');
    await check('create imagedigestmirrorsets');
  });
});
