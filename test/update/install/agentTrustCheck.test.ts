import { copyFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { identifyBundle, type BundleEvidence } from '../../../lib/bundle/open/identity.ts';
import { agentObjects } from '../../../lib/update/install/agentObjects.ts';
import { gatherTrust, noTrust, type AgentTrust, type WantedTrust } from '../../../lib/update/install/agentTrust.ts';
import { checkAgents } from '../../../lib/update/install/agentTrustCheck.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import type { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('checkAgents', () => {
  let bundle: TestBundle;
  let trust: WantedTrust;
  let evidence: BundleEvidence | undefined;
  let server: TestApiServer;
  let connected: StartedCluster;

  before(async () => {
    // The key of the release is only in the file.
    bundle = await makeBundle({ files: { '0000_90_cluster-update-keys_configmap.yaml': undefined } });
    const keyring = join(bundle.folder, 'our key.asc');
    await copyFile(bundle.keyFile, keyring);
    trust = { fingerprints: [bundle.key.fingerprint], keyrings: [keyring], allowUnsigned: false };
    const nowhere = (): Promise<undefined> => Promise.resolve(undefined);
    ({ evidence } = await identifyBundle(bundle.path, { ...trust, fetchFile: nowhere }, makeContext()));
  });
  after(() => bundle.remove());
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.19.3' });
    ({ server } = connected);
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
  });
  afterEach(() => connected.close());
  const bring = (given: AgentTrust): void => {
    const options = { image: platformImage('d'), executables: {}, admission: undefined, rules: true, trust: given };
    for (const agents of agentObjects(options).slice(-1)) server.put({ ...agents });
  };
  /** Brings agents of another version, which accept unsigned releases. */
  const bringOther = (version: string, formats: string): void => {
    const options = { image: platformImage('d'), executables: {}, admission: undefined, rules: true, version };
    for (const { metadata, ...agents } of agentObjects({
      ...options,
      trust: { ...noTrust, allowUnsigned: true },
    }).slice(-1)) {
      const annotations = { ...metadata.annotations, 'upgrade-bundle.openshift.io/bundle-formats': formats };
      server.put({ ...agents, metadata: { ...metadata, annotations } });
    }
  };
  const warnings = (): string[] => connected.context.lines.filter((line) => line.startsWith('warn: '));
  const check = (): Promise<void> => checkAgents(connected.cluster, evidence, trust, connected.context);

  it('is said with the command that gives them the key, where they have only heard of it', async () => {
    const other = 'A'.repeat(40);
    const fingerprints = [other, bundle.key.fingerprint];
    bring({ ...noTrust, fingerprints });
    const error = await failureOf(check(), 'untrusted');
    expect(error.message).to.contain(`they do not have the key ${bundle.key.fingerprint}`);
    const [, command] = error.hint?.split('installation: ') ?? [];
    expect(command).to.equal(
      `oc adm-upgrade-bundle install --trust-fingerprint=${other} --trust-fingerprint=${bundle.key.fingerprint} ` +
        `--signature-keyring='${join(bundle.folder, 'our key.asc')}'`,
    );
    bring(await gatherTrust({ ...trust, fingerprints }, noTrust, connected.context));
    await check();
  });

  it('is skipped if the agents accept unsigned releases, and if there are none', async () => {
    await check();
    bring({ ...noTrust, allowUnsigned: true });
    await check();
    expect(warnings()).to.deep.equal([]);
  });

  it('is a bundle of a format that older agents do not read', async () => {
    const later = evidence && { ...evidence, formatVersion: 2 as const };
    const checkLater = (): Promise<void> => checkAgents(connected.cluster, later, trust, connected.context);
    // The first agents recorded nothing, and read both formats.
    bring({ ...noTrust, allowUnsigned: true });
    await checkLater();
    bringOther('0.0.9', '1');
    const error = await failureOf(checkLater(), 'unsupported');
    expect(error.message).to.equal('the agents (0.0.9) would refuse the bundle: its format is 2, and they read 1');
    expect(error.hint).to.contain('oc adm-upgrade-bundle install');
    await check();
  });

  it('is unknown to a user who may not read the agents, which is logged', async () => {
    bring(noTrust);
    server.fault(/daemonsets/, { answer: { status: 403 } });
    await check();
    expect(warnings().join()).to.match(/^warn: whether the agents trust it too is unknown: /);
  });
});
