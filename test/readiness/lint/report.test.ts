import { expect } from 'chai';
import { stringify } from 'yaml';
import { lintManifests, type LintReport } from '../../../lib/readiness/lint/lint.ts';
import { makeContext } from '../../support/context.ts';

const image = `quay.io/x/y@sha256:${'a'.repeat(64)}`;
const container = { name: 'c', image, imagePullPolicy: 'Always' };
const metadata = { name: 'x', namespace: 'openshift-x' };
const pod = { apiVersion: 'v1', kind: 'Pod', metadata, spec: { containers: [container] } };

function lint(files: Readonly<Record<string, string>>): Promise<LintReport> {
  return lintManifests({ name: 'x', files: new Map(Object.entries(files)) }, makeContext());
}

describe('applyRules', () => {
  it('names the component by the image, or by the file', async () => {
    const spec = { tags: [{ name: 'etcd', from: { kind: 'DockerImage', name: image } }] };
    const files = { '0000_50_cluster-x_03.yaml': stringify(pod) };
    const componentOf = async (more: Record<string, string>) =>
      (await lint({ ...files, ...more })).findings[0]?.component;
    expect(await componentOf({})).to.equal('cluster-x');
    expect(await componentOf({ 'image-references': JSON.stringify({ kind: 'ImageStream', spec }) })).to.equal('etcd');
  });

  it('prints no secrets and no lines of its own from a manifest', async () => {
    const command =
      "podman pull --creds=me:hunter2 --password hunter2 https://me:hunter2@quay.io/x/y 'a\nerror: forged'";
    const { findings } = await lint({ 'x.sh': command });
    expect(findings).to.have.length(1);
    expect(findings[0]?.message).to.match(/contacts a registry: podman pull --creds=… --password … /);
    expect(JSON.stringify(findings)).not.to.match(/hunter2|\\n/);
  });
});
