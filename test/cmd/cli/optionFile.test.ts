import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { formatSiteReport } from '../../../lib/config/siteReport.ts';
import { openWorkshop, runProgram, type Workshop } from '../../support/content/creation.ts';
import { executeProgram } from '../../support/program/execution.ts';

describe('create --file', () => {
  let workshop: Workshop;
  let spec: Record<string, unknown>;
  before(async () => {
    workshop = await openWorkshop();
    const { version, arch, registry, releaseRepository } = workshop.release;
    spec = {
      version,
      arch,
      releaseRepository: `${registry}/${releaseRepository}`,
      insecure: true,
      trustFingerprints: [workshop.key.fingerprint],
      output: workshop.output,
    };
  });
  after(() => workshop.close());

  const run = (...args: string[]) => runProgram(workshop.folder, 'create', args);
  const write = (fields: object, kind = 'BundleConfig'): Promise<string> =>
    workshop.write(
      'site.yaml',
      JSON.stringify({ apiVersion: 'upgrade-bundle.openshift.io/v1alpha1', kind, spec: fields }),
    );
  const digestIn = async (folder: string): Promise<string> =>
    (await readFile(join(folder, `upgrade-${workshop.release.tag}.tar.sha256`), 'utf8')).slice(0, 64);

  it('creates the same bytes at each run, and by the same options', async () => {
    const file = await write(spec);
    const folders = ['one', 'two', 'three'].map((name) => join(workshop.folder, name));
    const [one = '', two = '', three = ''] = folders;
    const results = [
      await run('-f', file, `--output=${one}`),
      await run(`--file=${file}`, `--output=${two}`),
      await workshop.create({ output: three }),
    ];
    for (const { code, stderr } of results) expect(code, stderr).to.equal(0);
    const digests = await Promise.all(folders.map(digestIn));
    expect(new Set(digests).size).to.equal(1);
  });

  it('prints a file from options that gives the same options', async () => {
    const { stdout, code } = await runProgram(workshop.folder, 'create', [
      ...workshop.options({ catalog: 'quay.io/a/index:v4.20', operator: ['etcd@stable:1.0.0', 'web'] }),
      '--dry-run=client',
      '--print-config',
    ]);
    expect(code).to.equal(0);
    expect(parse(stdout)).to.deep.include({ kind: 'BundleConfig' });
    expect((parse(stdout) as { spec: object }).spec).to.deep.equal({
      ...spec,
      dryRun: 'client',
      catalogs: ['quay.io/a/index:v4.20'],
      operators: ['etcd@stable:1.0.0', 'web'],
    });
    const again = await run('-f', await workshop.write('printed.yaml', stdout), '--print-config');
    expect(again.stdout).to.equal(stdout);
  });

  it('prints the architecture and the operators of a report', async () => {
    const operator = { name: 'web-terminal', channel: 'fast', version: '1.10.0', catalog: 'redhat-operators' };
    const report = {
      formatVersion: 1 as const,
      created: '2026-11-01T00:00:00Z',
      tool: 'test/1',
      version: '4.12.3',
      arch: 'aarch64',
      channel: 'stable-4.12',
      history: [],
      nodes: [],
      operators: [operator],
      findings: [],
    };
    const file = await workshop.write('report.json', formatSiteReport(report));
    const options = [`--for=${file}`, '--catalog=quay.io/example/index:v4.12', '4.12.4', '--output=.'];
    const { stdout, stderr } = await run(...options, '--print-config');
    expect((parse(stdout) as { spec: object }).spec, stderr).to.deep.equal({
      arch: 'aarch64',
      catalogs: ['quay.io/example/index:v4.12'],
      for: file,
      version: '4.12.4',
      operators: ['web-terminal@fast:1.10.0'],
    });
  });

  it('is replaced by the options of the command line', async () => {
    const file = await write({ ...spec, version: '4.1.1', volumeSize: '4G', trustFingerprints: [] });
    const named = `quay.io/example/release@sha256:${'1'.repeat(64)}`;
    const fields = async (...args: string[]): Promise<unknown> => {
      const { stdout, stderr } = await run('-f', file, '--print-config', ...args);
      expect(stderr).to.equal('');
      return (parse(stdout) as { spec: object }).spec;
    };
    const kept = { ...spec, volumeSize: '4G', trustFingerprints: undefined };
    const given = JSON.parse(JSON.stringify(kept)) as object;
    expect(await fields('4.12.4')).to.deep.equal({ ...given, version: '4.12.4' });
    const { version: _, ...others } = given as { version: string };
    expect(await fields(`--release-image=${named}`)).to.deep.equal({ ...others, releaseImage: named });
    expect(await fields('--no-insecure', '--volume-size=2G')).to.deep.equal(
      JSON.parse(JSON.stringify({ ...given, version: '4.1.1', insecure: undefined, volumeSize: '2G' })),
    );
  });

  it('is read from the standard input, unless the images are', async () => {
    const text = await readFile(await write(spec), 'utf8');
    const read = (...args: string[]) =>
      executeProgram('oc-adm_upgrade_bundle', ['create', '-f', '-', ...args], {
        cwd: workshop.folder,
        env: { HOME: workshop.folder },
        stdin: text,
      });
    const { stdout, stderr, code } = await read('--print-config');
    expect(code, stderr).to.equal(0);
    expect((parse(stdout) as { spec: object }).spec).to.deep.equal(spec);
    const both = await read('--images-from=-');
    expect([both.code, both.stderr.split('\n')[0]]).to.deep.equal([
      2,
      'error (usage): --file and --images-from cannot both read the standard input',
    ]);
  });

  it('never prints a secret that was given in place of its file', async () => {
    const secret = JSON.stringify({ auths: { 'quay.io': { auth: 'c2VjcmV0OnRva2Vu' } } });
    const text = await readFile(await write({ ...spec, pullSecret: secret }), 'utf8');
    for (const args of [
      ['-f', await workshop.write('secret.yaml', text)],
      ['-f', await write({ ...spec, pullSecret: JSON.parse(secret) as object })],
      [...workshop.options(), `--pull-secret=${secret}`],
      [...workshop.options(), `--registry-config=\n ${secret}`],
    ])
      for (const more of [[], ['--print-config']]) {
        const { code, stdout, stderr } = await run(...args, ...more);
        expect(code, stderr).to.be.oneOf([1, 2]);
        expect(stderr).to.match(/the name of a file is needed, and not its content|spec.pullSecret must be text/);
        expect(stdout + stderr).not.to.include('c2VjcmV0OnRva2Vu');
      }
  });

  const faults: readonly (readonly [title: string, fields: object, message: RegExp])[] = [
    ['an unknown field', { catalog: [] }, /unknown field spec\.catalog\n.*Did you mean catalogs\?/],
    ['a number for a text', { version: 4.2 }, /spec\.version must be text\n.*quotes/],
    ['a list for a text', { arch: ['x86_64'] }, /spec\.arch must be text\n(?!.*quotes)/],
    ['a text for a list', { operators: 'etcd' }, /spec\.operators must be a list/],
    ['a value that the option refuses', { arch: 'x86' }, /site\.yaml: spec\.arch cannot be “x86”/],
    ['a field by two names', { extraImages: [], additionalImages: [] }, /given twice, under two names/],
    ['a malformed image', { extraImages: ['https://x/y'] }, /spec\.extraImages: a URL is not an image reference/],
  ];
  for (const [title, fields, message] of faults) {
    it(`is refused with ${title}`, async () => {
      const { code, stderr } = await run('-f', await write({ ...spec, ...fields }));
      expect(code).to.equal(1);
      expect(stderr).to.match(message);
    });
  }

  it('is refused with more releases than a bundle can have', async () => {
    const version = Array.from({ length: 17 }, (_, patch) => `4.12.${patch + 1}`).join(',');
    const { code, stderr } = await run('-f', await write({ ...spec, version }));
    expect(code).to.equal(2);
    expect(stderr).to.match(/a bundle has at most 16 releases, and 17 are wanted\nhint: Create two bundles/);
  });

  it('is refused with a field that is there twice', async () => {
    const text = await readFile(await write(spec), 'utf8');
    const path = await workshop.write('twice.yaml', text.replace('"spec":{', '"spec":{"output":"elsewhere",'));
    const { code, stderr } = await run('-f', path);
    expect(code).to.equal(1);
    expect(stderr).to.match(/line \d+ repeats a key/);
  });

  it('is refused if it is of another kind', async () => {
    const { stderr } = await run('-f', await write(spec, 'SiteConfig'));
    expect(stderr).to.include('and kind BundleConfig');
    const other = await workshop.write('other.yaml', 'a: 1\n');
    expect((await run('-f', other)).stderr).to.include('unknown field a');
  });
});
