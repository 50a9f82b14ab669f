import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse, stringify } from 'yaml';
import type { LintResult } from '../../../lib/readiness/lint/lint.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const annotations = { 'include.release.openshift.io/self-managed-high-availability': 'true' };

const manifest = (name: string, policy: string, image = 'quay.io/x/y:v1'): string =>
  stringify({
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name, namespace: 'openshift-x', annotations },
    spec: { template: { spec: { containers: [{ name: 'c', image, imagePullPolicy: policy }] } } },
  });

describe('oc adm-upgrade-bundle lint', () => {
  let older: TestBundle;
  let newer: TestBundle;
  let folder: string;
  const lint = (args: string, stdin?: string): Promise<Execution> =>
    executeProgram('oc-adm_upgrade_bundle', ['lint', ...args.split(' ')], {
      cwd: folder,
      env: { HOME: folder },
      ...(stdin !== undefined && { stdin }),
    });
  const report = async (args: string, stdin?: string): Promise<LintResult> =>
    JSON.parse((await lint(`${args} -o json`, stdin)).stdout) as LintResult;
  const rulesOf = ({ findings }: LintResult): string[] => findings.map(({ rule, object }) => `${rule} ${object.name}`);

  before(async () => {
    const known = { '0000_50_x_01.yaml': manifest('old', 'Always') };
    older = await makeBundle({ version: '4.12.3', files: known });
    const files = { ...known, '0000_50_x_02.yaml': manifest('new', 'IfNotPresent') };
    newer = await makeBundle({ version: '4.12.4', files, base: older.path });
  });
  after(() => Promise.all([older.remove(), newer.remove()]));
  beforeEach(async () => {
    folder = await makeFolder();
    await mkdir(join(folder, 'manifests'));
    await writeFile(join(folder, 'manifests', 'a.yaml'), manifest('a', 'Always'));
    await mkdir(join(folder, 'empty'));
    await writeFile(join(folder, 'empty', 'values.yaml'), 'some: value\n');
  });
  afterEach(() => removeFolder(folder));

  it('reads a bundle, a mirror directory, a delta bundle, volumes, and a release in a registry', async () => {
    await using split = await makeBundle({
      version: '4.12.3',
      files: { '0000_50_x_01.yaml': manifest('old', 'Always') },
      volumeSize: 128 * 1024,
    });
    await using server = await startRegistry();
    older.release.addTo(server.content);
    const image = `${server.host}/${older.release.releaseRepository}`;
    const expected = ['pull-always old', 'image-not-in-release old', 'image-by-tag old'];
    for (const target of [
      older.path,
      await older.unpack(),
      `${split.path}.000`,
      split.folder,
      `${image}@${older.release.digest} --insecure`,
      `4.12.3 --release-repository=${image} --insecure`,
    ]) {
      const result = await report(target);
      expect(rulesOf(result), target).to.deep.equal(expected);
      expect(result, target).to.include({ version: '4.12.3', knowsImages: true, passed: false, failing: 2 });
    }
    expect(rulesOf(await report(newer.path))).to.include.members(['image-not-in-release new', 'pull-always old']);
  });

  it('reads a folder, a file and the standard input, and reports missing parts', async () => {
    for (const [target, stdin] of [['manifests'], ['manifests/a.yaml'], ['-', manifest('a', 'Always')]] as const)
      expect(rulesOf(await report(target, stdin)), target).to.deep.equal(['pull-always a', 'image-by-tag a']);
    for (const [target, message] of [
      ['absent.tar', 'there is no absent.tar'],
      ['.', /needs a registry/],
      ['empty', 'nothing in empty can be checked'],
      ['manifests --fail-on=never', '--fail-on cannot be “never”'],
    ] as const) {
      const { code, stderr } = await lint(target);
      expect(code).to.equal(target.includes('never') ? 2 : 1);
      expect(stderr).to.match(typeof message === 'string' ? new RegExp(message) : message);
    }
  });

  it('prints the findings by rule, with the remedy, and fails by severity', async () => {
    const { code, stdout, stderr } = await lint('manifests');
    expect(code).to.equal(1);
    expect(stdout).to.contain(
      '\nblocker pull-always (1)\n  The kubelet asks a registry at each start of the container, even if the ' +
        'node has the image.\n' +
        '  Set imagePullPolicy: IfNotPresent, or image.pullPolicy of an image volume.\n  - container c pulls ' +
        'from a registry at every start (pull policy: Always)\n' +
        '    daemonset/a -n openshift-x of openshift-x, a.yaml:14 spec.template.spec.containers[c].imagePullPolicy\n',
    );
    expect(stderr).to.contain('error (needs-registry): manifests needs a registry: 1 finding');
    const tagged = manifest('a', 'IfNotPresent');
    expect((await lint('-', tagged)).code).to.equal(0);
    expect((await lint('- --fail-on=warning', tagged)).code).to.equal(1);
    const sound = manifest('a', 'IfNotPresent', `quay.io/x/y@sha256:${'a'.repeat(64)}`);
    expect((await lint('- --fail-on=warning', sound)).stdout).to.match(
      /\nNothing was found that needs a registry\.\n$/,
    );
  });

  it('reports only findings that an earlier release does not have', async () => {
    const result = await report(`${newer.path} --against=${older.path}`);
    expect(rulesOf(result)).to.deep.equal(['image-not-in-release new', 'image-by-tag new']);
    expect((await lint(`${older.path} --against=${newer.path}`)).code).to.equal(0);
  });

  it('accepts the findings of a baseline until their day, if they have a reason', async () => {
    const file = join(folder, 'baseline.yaml');
    expect((await lint('manifests --write-baseline=baseline.yaml')).code).to.equal(0);
    const { findings } = parse(await readFile(file, 'utf8')) as { findings: Record<string, string>[] };
    expect(findings).to.have.length(1);
    const run = async (changes: Record<string, string>): Promise<[code: number, status: string | undefined]> => {
      await writeFile(file, stringify({ findings: findings.map((entry) => ({ ...entry, ...changes })) }));
      const { code, stdout } = await lint('manifests --baseline=baseline.yaml -o json');
      return [code, (JSON.parse(stdout) as LintResult).findings.find(({ rule }) => rule === 'pull-always')?.status];
    };
    expect(await run({})).to.deep.equal([1, 'incomplete']);
    expect(await run({ reason: 'known' })).to.deep.equal([1, 'incomplete']);
    expect(await run({ reason: 'known', until: '9999-12-31' })).to.deep.equal([0, 'known']);
    expect(await run({ reason: 'known', until: new Date().toISOString().slice(0, 10) })).to.deep.equal([0, 'known']);
    expect(await run({ reason: 'known', until: '2020-01-01' })).to.deep.equal([1, 'expired']);
    expect(await run({ reason: 'known', until: '9999-12-31', field: 'spec.other' })).to.deep.equal([1, 'new']);
    expect((await lint('manifests --baseline=baseline.yaml')).stdout).to.contain(
      'has an entry without a finding: pull-always',
    );
  });

  it('keeps the reasons of a baseline that it writes again', async () => {
    const file = join(folder, 'baseline.yaml');
    await lint('manifests --write-baseline=baseline.yaml');
    const { findings } = parse(await readFile(file, 'utf8')) as { findings: Record<string, string>[] };
    const known = findings.map((entry) => ({ ...entry, reason: 'known', until: '9999-12-31' }));
    await writeFile(file, stringify({ findings: known }));
    await lint('manifests --fail-on=warning --baseline=baseline.yaml --write-baseline=baseline.yaml');
    const { findings: again } = parse(await readFile(file, 'utf8')) as { findings: Record<string, string>[] };
    expect(again.map(({ rule, reason }) => [rule, reason])).to.deep.equal([
      ['pull-always', 'known'],
      ['image-by-tag', ''],
    ]);
  });

  it('refuses a file that is no baseline', async () => {
    const invalidDay = 'findings: [{rule: a, object: b, field: c, value: d, reason: e, until: May}]';
    for (const text of ['findings: x', 'findings: [{rule: x}]', invalidDay]) {
      await writeFile(join(folder, 'baseline.yaml'), text);
      expect((await lint('manifests --baseline=baseline.yaml')).stderr).to.contain('is not a baseline: ');
    }
  });

  it('prints JUnit and SARIF, in which known findings do not fail', async () => {
    await writeFile(join(folder, 'manifests', 'b.yaml'), manifest('b<&"\u0001', 'Always'));
    const junit = (await lint('manifests -o junit')).stdout;
    expect(junit).to.match(
      /^<\?xml version="1.0" encoding="UTF-8"\?>\n<testsuites name="lint manifests" tests="\d+" failures="2">/,
    );
    expect(junit).to.contain('<testsuite name="pull-always" tests="2" failures="2" errors="0" skipped="0" time="0">');
    expect(junit).to.contain('name="daemonset/b&lt;&amp;&quot;\ufffd -n openshift-x spec.');
    await lint('manifests --write-baseline=baseline.yaml');
    const text = await readFile(join(folder, 'baseline.yaml'), 'utf8');
    await writeFile(
      join(folder, 'baseline.yaml'),
      text.replaceAll('reason: ""', 'reason: known').replaceAll('until: ""', 'until: "9999-12-31"'),
    );
    expect((await lint('manifests --baseline=baseline.yaml -o junit')).stdout).to.contain(
      'failures="0" errors="0" skipped="2"',
    );
    const { code, stdout } = await lint('manifests --baseline=baseline.yaml -o sarif');
    expect(code).to.equal(0);
    const { version, runs } = JSON.parse(stdout) as {
      version: string;
      runs: { results: { ruleId: string; level: string; suppressions?: object[] }[] }[];
    };
    expect(version).to.equal('2.1.0');
    expect(
      runs[0]?.results.map(({ ruleId, level, suppressions }) => [ruleId, level, suppressions?.length]),
    ).to.deep.equal([
      ...[1, 2].map(() => ['pull-always', 'error', 1]),
      ...[1, 2].map(() => ['image-by-tag', 'warning', undefined]),
    ]);
  });
});
