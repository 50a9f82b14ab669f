import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { stringify } from 'yaml';
import { lintManifests, type LintReport } from '../../../lib/readiness/lint/lint.ts';
import { makeContext } from '../../support/context.ts';

const image = `quay.io/x/y@sha256:${'a'.repeat(64)}`;
const container = { name: 'c', image, imagePullPolicy: 'Always' };
const metadata = { name: 'x', namespace: 'openshift-x' };
const pod = { apiVersion: 'v1', kind: 'Pod', metadata, spec: { containers: [container] } };
const template = { template: { spec: pod.spec } };

function lint(files: Readonly<Record<string, string>>): Promise<LintReport> {
  return lintManifests({ name: 'x', files: new Map(Object.entries(files)) }, makeContext());
}

/** Returns the rule and the field of each finding in one file. */
async function find(content: object | string, file = 'x.yaml'): Promise<string[]> {
  const { findings } = await lint({ [file]: typeof content === 'string' ? content : stringify(content) });
  return findings.map(({ rule, field }) => `${rule} ${field}`);
}

function machineConfig(...files: object[]): object {
  const spec = { config: { storage: { files: files.map((each) => ({ path: '/etc/x', ...each })) } } };
  return { apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'MachineConfig', metadata: { name: 'x' }, spec };
}

describe('inspectFile', () => {
  it('reads pods in objects of every kind, and names the field', async () => {
    const always = 'containers[c].imagePullPolicy';
    const kinds: [content: object, field: string][] = [
      [pod, 'spec'],
      [{ apiVersion: 'v1', kind: 'List', items: [pod] }, 'spec'],
      [{ ...pod, kind: 'Deployment', spec: template }, 'spec.template.spec'],
      [{ ...pod, kind: 'CronJob', spec: { jobTemplate: { spec: template } } }, 'spec.jobTemplate.spec.template.spec'],
      [
        {
          ...pod,
          kind: 'ClusterServiceVersion',
          spec: { install: { spec: { deployments: [{ name: 'd', spec: template }] } } },
        },
        'spec.install.spec.deployments[d].spec.template.spec',
      ],
      [{ ...pod, kind: 'Template', objects: [pod], spec: {} }, 'objects[0].spec'],
      [{ ...pod, kind: 'ConfigMap', spec: undefined, data: { 'pod.yaml': stringify(pod) } }, 'data.pod.yaml > spec'],
    ];
    for (const [content, field] of kinds)
      expect(await find(content), field).to.deep.equal([`pull-always ${field}.${always}`]);
  });

  it('decodes the files of machine configurations, and the manifests and scripts in them', async () => {
    const script = '#!/bin/bash\npodman pull quay.io/x/y\n';
    const url = (bytes: Buffer): string => `data:text/plain;charset=utf-8;base64,${bytes.toString('base64')}`;
    const static_ = Buffer.from(stringify(pod));
    const found = await find(
      machineConfig(
        { path: '/plain', contents: { source: `data:,${encodeURIComponent(script)}` } },
        { path: '/base64', contents: { source: url(Buffer.from(script)) } },
        { path: '/gzip', contents: { source: url(gzipSync(script)), compression: 'gzip' } },
        { path: '/etc/kubernetes/manifests/x.yaml', contents: { source: url(static_) } },
        { path: '/binary', contents: { source: url(Buffer.from([0xff, 0xfe, 0])) } },
        { path: '/empty', contents: {} },
      ),
    );
    const files = 'spec.config.storage.files';
    expect(found).to.deep.equal([
      `pull-always ${files}[/etc/kubernetes/manifests/x.yaml].contents.source > spec.containers[c].imagePullPolicy`,
      ...['plain', 'base64', 'gzip'].map((name) => `contacts-registry ${files}[/${name}].contents.source`),
    ]);
    const binaryData = { 'run.sh': gzipSync(script).toString('base64') };
    expect(await find({ ...pod, kind: 'ConfigMap', spec: undefined, binaryData })).to.deep.equal([
      'contacts-registry binaryData.run.sh',
    ]);
    const secret = { ...pod, kind: 'Secret', spec: undefined };
    const encoded = Buffer.from(stringify(pod)).toString('base64');
    for (const field of [{ data: { 'pod.yaml': encoded } }, { stringData: { 'pod.yaml': stringify(pod) } }])
      expect(await find({ ...secret, ...field })).to.deep.equal([
        `pull-always ${Object.keys(field).join()}.pod.yaml > spec.containers[c].imagePullPolicy`,
      ]);
    const ignition = JSON.stringify({
      ignition: { version: '3.4.0' },
      systemd: { units: [{ name: 'x.service', contents: '[Service]\nExecStart=podman pull x/y\n' }] },
    });
    expect(await find(ignition, 'x.ign')).to.deep.equal(['contacts-registry systemd.units[x.service].contents']);
    const args = ['sh', '-c', script];
    expect(await find({ ...pod, spec: { containers: [{ name: 'c', image, args }] } })).to.deep.equal([
      'contacts-registry spec.containers[c].args',
    ]);
    expect(await find(script, 'x.sh')).to.deep.equal(['contacts-registry ']);
  });

  it('leaves out objects of other profiles, objects that are deleted, and status', async () => {
    const profile = 'include.release.openshift.io/';
    const marked = (annotations: Record<string, string>): object => ({
      ...pod,
      metadata: { ...metadata, annotations },
    });
    expect(await find(marked({ [`${profile}ibm-cloud-managed`]: 'true' }))).to.deep.equal([]);
    expect(await find(marked({ 'release.openshift.io/delete': 'true' }))).to.deep.equal([]);
    const both = { [`${profile}ibm-cloud-managed`]: 'true', [`${profile}self-managed-high-availability`]: 'true' };
    expect(await find(marked(both))).to.have.length(1);
    expect(await find({ ...pod, spec: {}, status: pod.spec })).to.deep.equal([]);
    expect(
      await find(marked({ 'kubectl.kubernetes.io/last-applied-configuration': JSON.stringify(pod) })),
    ).to.have.length(1);
  });

  describe('with hostile files', () => {
    const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024)).toString('base64');
    const aliases = [
      'a: &a [x,x,x,x,x,x,x,x,x]',
      ...Array.from('bcdefghi').map(
        (name, index) =>
          `${name}: &${name} [${Array<string>(9)
            .fill(`*${'abcdefgh'.charAt(index)}`)
            .join()}]`,
      ),
    ].join('\n');
    const hostile: Record<string, string> = {
      'aliases.yaml': aliases,
      'tokens.yaml': '[,'.repeat(200_000),
      'deep.json': `${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}`,
      'gzip.yaml': stringify({ ...pod, kind: 'ConfigMap', spec: undefined, binaryData: { x: bomb } }),
      'nested.yaml': stringify({ ...pod, kind: 'ConfigMap', spec: undefined, data: { 'x.yaml': aliases } }),
      'lists.json': `${'{"kind":"List","apiVersion":"v1","items":['.repeat(50_000)}${']}'.repeat(50_000)}`,
      'arrays.json': `${'['.repeat(100_000)}${']'.repeat(100_000)}`,
      'malformed.json': '{"kind": "Pod", ',
    };
    let report: LintReport;
    before(async () => {
      report = await lint(hostile);
    });

    it('reports each file that it cannot read within its limits', () => {
      expect(report.findings.map(({ rule, file }) => [rule, file])).to.have.deep.members(
        Object.keys(hostile).map((file) => ['unreadable', file]),
      );
    });

    it('quotes nothing of a file that it cannot read', () => {
      expect(report.findings.map(({ message }) => message).join('\n')).not.to.contain('[x');
    });

    it('reads a value that contains itself once', async () => {
      const found = await find(
        `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: &a [*a, *a, {containers: [{name: c, ` +
          `image: ${image}, imagePullPolicy: Always}]}]\n`,
      );
      expect(found).to.have.length(1);
    });
  });
});
