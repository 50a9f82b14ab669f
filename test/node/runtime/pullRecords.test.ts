import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { findGuardedImages, removeRecord } from '../../../lib/node/runtime/pullRecords.ts';

const repository = 'quay.io/openshift-release-dev/ocp-v4.0-art-dev';
const name = `${repository}@sha256:1`;
const id = 'c0ffee';

describe('the records of pulls of the kubelet', () => {
  let root: string;
  const host = () => ({ root, environment: {} });
  const write = async (kind: 'pulled' | 'pulling', key: string, content: object | string): Promise<string> => {
    const file = `sha256-${createHash('sha256').update(key).digest('hex')}`;
    const path = join(root, 'var/lib/kubelet/image_manager', kind, file);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content));
    return path;
  };
  /** Writes a record as the kubelet does (kubelet.config.k8s.io/v1beta1). */
  const record = (credentialMapping: object) =>
    write('pulled', id, {
      kind: 'ImagePulledRecord',
      apiVersion: 'kubelet.config.k8s.io/v1beta1',
      lastUpdatedTime: '2026-11-01T00:00:00Z',
      imageRef: id,
      credentialMapping,
    });
  const find = () => findGuardedImages(host(), [[name, id]]);
  const reasons = async () => (await find()).map(({ reason }) => reason);

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'records-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  it('refuse nothing without records, and nothing that every pod may use', async () => {
    expect(await reasons()).to.deep.equal([]);
    await record({ [repository]: { nodePodsAccessible: true } });
    await write('pulling', 'another', { kind: 'ImagePullIntent', image: 'another' });
    expect(await reasons()).to.deep.equal([]);
  });

  it('refuse an image that was pulled under another repository', async () => {
    await record({ 'mirror.example.com/release': { nodePodsAccessible: true } });
    expect(await reasons()).to.deep.equal(['it was pulled as mirror.example.com/release']);
  });

  it('refuse an image to pods without the secret it was pulled with', async () => {
    await record({
      [repository]: { kubernetesSecrets: [{ uid: '1', namespace: 'app', name: 'pull', credentialHash: 'h' }] },
    });
    expect(await reasons()).to.deep.equal(['it was pulled with app/pull, and is only for pods with that']);
  });

  const policies = [
    ['NeverVerifyPreloadedImages', true],
    ['AlwaysVerify', true],
    ['NeverVerify', false],
    ['NeverVerifyAllowlistedImages', true],
    [`NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ["${repository}"]`, false],
  ] as const;
  for (const [policy, isRefused] of policies)
    it(`refuse ${isRefused ? 'an image' : 'nothing'} if the policy is ${policy}, unless the record is corrupt`, async () => {
      await mkdir(join(root, 'etc/kubernetes'), { recursive: true });
      await writeFile(join(root, 'etc/kubernetes/kubelet.conf'), `imagePullCredentialsVerificationPolicy: ${policy}\n`);
      await record({ 'site.example/other': { nodePodsAccessible: true } });
      expect(await find()).to.have.length(isRefused ? 1 : 0);
      await write('pulled', id, '');
      expect((await find())[0]?.isUnreadable).to.equal(true);
    });

  it('refuse an image whose pull was interrupted, or has not ended', async () => {
    await record({});
    expect(await reasons()).to.deep.equal(['a pull of it was interrupted']);
    await rm(join(root, 'var'), { recursive: true });
    await write('pulling', name, { kind: 'ImagePullIntent', image: name });
    expect(await reasons()).to.deep.equal(['a pull of it has not ended']);
  });

  for (const text of ['', '{', '{"kind":"Other"}', 'null'])
    it(`refuse an image with a record that reads ${text === '' ? 'nothing' : text}, until it is removed`, async () => {
      const path = await write('pulled', id, text);
      const [found] = await find();
      expect(found?.isUnreadable).to.equal(true);
      if (found) await removeRecord(host(), found);
      expect(existsSync(path)).to.equal(false);
      expect(await reasons()).to.deep.equal([]);
    });
});
