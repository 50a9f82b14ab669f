import { expect } from 'chai';
import { checkFailedPulls } from '../../../lib/readiness/preflight/pullPolicy.ts';
import { platformImage, pod } from '../../fakes/cluster/site.ts';

const release = `quay.io/openshift-release-dev/ocp-release@sha256:${'1'.repeat(64)}`;
const waiting = (namespace: string, image: string, reason = 'ImagePullBackOff', labels = {}) => {
  const made = pod('web-1', namespace, { containers: [{ name: 'main', image }] });
  const state = { waiting: { reason, message: 'no such host' } };
  return {
    ...made,
    metadata: { ...made.metadata, labels },
    status: { phase: 'Pending', containerStatuses: [{ name: 'main', image: 'a name of its own', state }] },
  };
};
const find = (...[pods, bundled = []]: [ReturnType<typeof waiting>, string[]?]): string[] =>
  checkFailedPulls([pods], release, bundled).map(({ severity, message }) => `${severity} ${message}`);

describe('preflight of pods that cannot pull', () => {
  const own = platformImage('b');
  const failed = `cannot pull ${own} (ImagePullBackOff: no such host)`;

  it('blocks for a pod of the running release, unless the bundle has its image', () => {
    expect(find(waiting('openshift-dns', own))).to.deep.equal([`blocker ${failed}`]);
    expect(find(waiting('openshift-dns', own), [own])).to.deep.equal([`warning ${failed}`]);
  });

  it('warns for pods of others, of optional operators and of catalogs', () => {
    expect(find(waiting('shop', own))).to.deep.equal([`warning ${failed}`]);
    const other = `registry.redhat.io/odf4/rook@sha256:${'2'.repeat(64)}`;
    expect(find(waiting('openshift-storage', other))[0]).to.match(/^warning cannot pull registry\.redhat\.io/);
    const catalog = waiting('openshift-marketplace', own, 'ErrImagePull', { 'olm.catalogSource': 'x' });
    expect(find(catalog)[0]).to.match(/^warning .*ErrImagePull/);
  });

  it('finds nothing for a pod that waits for something else', () => {
    expect(find(waiting('openshift-dns', own, 'CrashLoopBackOff'))).to.deep.equal([]);
    expect(
      find({ ...waiting('openshift-dns', own), status: { phase: 'Running', containerStatuses: [] } }),
    ).to.deep.equal([]);
  });
});
