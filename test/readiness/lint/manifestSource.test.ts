import { expect } from 'chai';
import { stringify } from 'yaml';
import { lintManifests, type LintReport } from '../../../lib/readiness/lint/lint.ts';
import { payloadSet } from '../../../lib/readiness/lint/manifestSource.ts';
import { makeContext } from '../../support/context.ts';
import { featureGateFile } from '../../support/release/pinning.ts';

const image = `quay.io/x/y@sha256:${'a'.repeat(64)}`;
const container = { name: 'c', image, imagePullPolicy: 'Always' };
const metadata = { name: 'x', namespace: 'openshift-x' };
const pod = { apiVersion: 'v1', kind: 'Pod', metadata, spec: { containers: [container] } };
const template = { template: { spec: pod.spec } };

function lint(files: Readonly<Record<string, string>>): Promise<LintReport> {
  return lintManifests({ name: 'x', files: new Map(Object.entries(files)) }, makeContext());
}

describe('payloadSet', () => {
  it('leaves out objects of a release that clusters do not have by default, and counts files and objects', async () => {
    const own = { 'include.release.openshift.io/self-managed-high-availability': 'true' };
    const marked = (name: string, annotations?: object): string =>
      stringify({
        ...pod,
        kind: 'Deployment',
        metadata: { name, ...(annotations && { annotations }) },
        spec: template,
      });
    const files = {
      'a.yaml': marked('a', own),
      'b.yaml': marked('b', { ...own, 'release.openshift.io/feature-set': 'DevPreviewNoUpgrade' }),
      'c.yaml': marked('c', { ...own, 'release.openshift.io/feature-gate': 'Off' }),
      'd.yaml': marked('d', { ...own, 'release.openshift.io/feature-gate': 'On' }),
      'e.yaml': marked('e', { ...own, 'release.openshift.io/major-version': '4' }),
      'f.yaml': marked('f'),
      'g.yaml': stringify({ apiVersion: 'v1', kind: 'Service', metadata: { name: 'g', annotations: own } }),
      ...featureGateFile('Default', ['On'], ['Off']),
    };
    const buffers = new Map(Object.entries(files).map(([name, text]) => [name, Buffer.from(text)]));
    const checked = async (featureSet?: string): Promise<unknown> => {
      const { findings, objects, excluded } = await lintManifests(
        payloadSet('x', `quay.io/x/y@sha256:${'b'.repeat(64)}`, buffers, makeContext(), featureSet),
        makeContext(),
      );
      return [findings.map(({ object }) => object.name).join(' '), objects, excluded];
    };
    expect(await checked()).to.deep.equal(['a d', 3, 5]);
    expect(await checked('DevPreviewNoUpgrade')).to.deep.equal(['a b c d', 5, 3]);
    // Manifests of a folder may have no annotations at all.
    const { findings, objects } = await lint(files);
    expect([findings.map(({ object }) => object.name).join(' '), objects]).to.deep.equal(['a c d e f', 6]);
  });
});
