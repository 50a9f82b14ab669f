import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open.ts';
import { planUpdate } from '../../../lib/bundle/verify/updatePlan.ts';
import { makeBundle, type BundleOptions } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';

const manifest = (kind: string, name: string, annotations: Record<string, string> = {}): string =>
  JSON.stringify({ apiVersion: 'apps/v1', kind, metadata: { name, annotations }, spec: {} });
const profile = 'include.release.openshift.io/';

async function plan(options: BundleOptions = {}, trusted = true) {
  const made = await makeBundle(options);
  const context = makeContext();
  const bundle = await openBundle(made.path, context);
  try {
    const fingerprints = trusted ? [made.key.fingerprint] : [];
    const fetchFile = () => Promise.resolve(undefined);
    const trust = { keyrings: [made.keyFile], fingerprints, allowUnsigned: false, fetchFile };
    return { made, context, bundle, update: await planUpdate(bundle, trust, context) };
  } finally {
    await bundle.close();
    await made.remove();
  }
}

describe('planUpdate', () => {
  it('tells what an update asks of a cluster', async () => {
    const { made, bundle, update } = await plan();
    const { version, arch, images, previous } = bundle.metadata;
    expect(update).to.deep.include({ path: made.path, version, arch, images, previous, distrust: undefined });
    expect(update.size).to.equal(bundle.metadata.blobs.reduce((sum, { size }) => sum + size, 0));
    expect(update.workloads.map(({ file, object }) => [file, object.metadata.name])).to.deep.equal([
      ['0000_12_etcd_01_operator.yaml', 'etcd-operator'],
    ]);
  });

  it('reads the manifests of a multi-architecture release', async () => {
    const { update } = await plan({ arch: 'multi' });
    expect(update.arch).to.equal('multi');
    expect(update.workloads).to.have.length(1);
  });

  it('leaves out what is for other kinds of clusters, is removed, or cannot be read', async () => {
    const files = {
      '0000_01_ibm.json': manifest('Deployment', 'ibm', { [`${profile}ibm-cloud-managed`]: 'true' }),
      '0000_02_both.json': manifest('DaemonSet', 'both', {
        [`${profile}ibm-cloud-managed`]: 'true',
        [`${profile}self-managed-high-availability`]: 'true',
      }),
      '0000_03_gone.json': manifest('Job', 'gone', { 'release.openshift.io/delete': 'true' }),
      '0000_04_bad.yaml': 'kind: Pod\n  : [',
      '0000_05_text.yaml': '- kind: Pod\n- nothing\n',
    };
    const { update, context } = await plan({ files });
    expect(update.workloads.map(({ object }) => object.metadata.name)).to.have.members(['etcd-operator', 'both']);
    expect(context.lines.filter((line) => line.startsWith('warn: 0000'))).to.deep.equal([
      'warn: 0000_04_bad.yaml is neither YAML nor JSON, and is left out',
    ]);
  });

  it('tells that no trusted key signed the release', async () => {
    expect((await plan({}, false)).update.distrust?.code).to.equal('untrusted');
    expect((await plan({ signed: false })).update.distrust?.code).to.equal('unsigned');
  });
});
