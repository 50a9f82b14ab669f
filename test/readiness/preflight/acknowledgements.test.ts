import { expect } from 'chai';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { PreflightSite, plan } from '../../support/release/preflightSite.ts';

const config = 'config.openshift.io/v1';

describe('the acknowledgements of an update', () => {
  const site = new PreflightSite();
  const { start, run } = site;
  afterEach(() => site.close());

  it('lists the acknowledgements that all updates require', async () => {
    await start();
    const gates = (data: Record<string, string>): Json => ({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      data,
      metadata: { name: 'admin-gates', namespace: 'openshift-config-managed' },
    });
    site.server.put(gates({ 'ack-4.19-x': 'Check 4.20.', 'ack-4.19-y': 'Done.', 'ack-4.18-z': 'Old.' }));
    const metadata = { name: 'admin-acks', namespace: 'openshift-config' };
    site.server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { 'ack-4.19-y': 'true' } });
    const manifests = new Map([
      ['gates.yaml', Buffer.from(JSON.stringify(gates({ 'ack-4.20-x': 'Check 4.21.' }), null, 1))],
    ]);
    const first = { ...plan, version: '4.20.3', manifests };
    const { findings } = await run({ ...plan, version: '4.21.1', previous: ['4.20.3'], earlier: [first] });
    const due = findings.filter(({ subject }) => subject.name === 'admin-acks');
    expect(due.map(({ severity, message }) => `${severity}: ${message}`)).to.deep.equal([
      'warning: the update to 4.20.3 requires the acknowledgement ack-4.19-x: “Check 4.20.”',
      'warning: the update to 4.21.1 requires the acknowledgement ack-4.20-x: “Check 4.21.”',
      'info: the update to 4.21.1 may require, if the cluster has mirror sets, also those of mirrors on control ' +
        'plane nodes, the acknowledgement ack-4.20-sigstore-in-4.21: “Nodes of 4.21 verify the sigstore signature of ' +
        'the release image: its mirrors must have that signature.”',
    ]);
    expect(due[0]?.advice).to.contain('spec.acknowledge');
    expect((await run()).findings).to.deep.equal([]);
  });

  it('lists the acknowledgements that operators will ask for on the way', async () => {
    await start();
    site.server.kinds.push({
      group: 'operator.openshift.io',
      version: 'v1',
      kind: 'MachineConfiguration',
      resource: 'machineconfigurations',
      namespaced: false,
      status: true,
      custom: true,
    });
    const platformStatus = { type: 'VSphere' };
    site.server.put({
      apiVersion: config,
      kind: 'Infrastructure',
      metadata: { name: 'cluster' },
      status: { controlPlaneTopology: 'HighlyAvailable', platformStatus },
    });
    site.server.put({
      apiVersion: config,
      kind: 'ImageDigestMirrorSet',
      metadata: { name: 'oc-upgrade-bundle' },
      spec: { imageDigestMirrors: [{ source: 'quay.io/a', mirrors: ['mirror/a'] }] },
    });
    const earlier = ['4.20.9', '4.21.4'].map((version) => ({ ...plan, version }));
    const due = async (): Promise<string[]> => {
      const { findings } = await run({ ...plan, version: '4.22.1', previous: ['4.21.4'], earlier });
      return findings
        .filter(({ subject }) => subject.name === 'admin-acks')
        .map(({ severity, message }) => `${severity}: ${message.replace(/, because.*acknowledgement|: “.*/g, '')}`);
    };
    expect(await due()).to.deep.equal([
      'warning: the update to 4.21.4 will require ack-4.20-sigstore-in-4.21',
      'warning: the update to 4.22.1 will require ack-4.21-boot-image-opt-out-in-4.22',
    ]);
    const machineManagers = [{ apiGroup: 'machine.openshift.io', resource: 'machinesets' }];
    site.server.put({
      apiVersion: 'operator.openshift.io/v1',
      kind: 'MachineConfiguration',
      metadata: { name: 'cluster' },
      spec: { managedBootImages: { machineManagers } },
    });
    expect(await due()).to.deep.equal(['warning: the update to 4.21.4 will require ack-4.20-sigstore-in-4.21']);
  });
});
