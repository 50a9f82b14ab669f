import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { planUpdate } from '../../../lib/bundle/verify/updatePlan.ts';
import { makeBundle, type BundleOptions } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { streamRelease } from '../../support/release/streams.ts';

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
    await bundle[Symbol.asyncDispose]();
    await made.remove();
  }
}

describe('planUpdate', () => {
  it('lists the requirements of an update', async () => {
    const { made, bundle, update } = await plan();
    const { version, arch, images, previous } = bundle.metadata;
    expect(update).to.deep.include({ path: made.path, version, arch, images, previous, distrust: undefined });
    expect(update.size).to.equal(bundle.metadata.blobs.reduce((sum, { size }) => sum + size, 0));
    expect(update.release).to.equal(bundle.metadata.release);
    expect([...update.manifests.keys()]).to.include.members(['0000_12_etcd_01_operator.yaml', 'image-references']);
  });

  it('reads the manifests of a multi-architecture release', async () => {
    const { update } = await plan({ arch: 'multi' });
    expect(update.arch).to.equal('multi');
    expect([...update.manifests.keys()]).to.include('0000_12_etcd_01_operator.yaml');
  });

  it('has the operating system streams of a release that needs them described', async () => {
    const { update } = await plan(streamRelease);
    expect(update.streams?.availableStreams.map(({ name }) => name)).to.deep.equal(['rhel-10', 'rhel-9']);
    expect((await plan()).update.streams).to.equal(undefined);
  });

  it('tells that no trusted key signed the release', async () => {
    expect((await plan({}, false)).update.distrust?.code).to.equal('untrusted');
    expect((await plan({ signed: false })).update.distrust?.code).to.equal('unsigned');
  });
});
