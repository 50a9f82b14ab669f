import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import type { ReleaseDiff } from '../../lib/bundle/diff.ts';
import type { BundledRelease, BundleMetadata } from '../../lib/bundle/metadata/metadata.ts';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { planUpdate } from '../../lib/bundle/verify/updatePlan.ts';
import { formatSiteReport } from '../../lib/config/siteReport.ts';
import type { LintReport } from '../../lib/readiness/lint/lint.ts';
import { startRegistry } from '../fakes/registry/registry.ts';
import { repack, type UnpackedBundle } from '../support/archive/repack.ts';
import { addRelease, openWorkshop, runExecutable, runProgram, type Workshop } from '../support/content/creation.ts';
import { makeContext } from '../support/context.ts';
import { pullspecsOf, type TestRelease } from '../support/release/release.ts';

describe('a bundle with several releases', () => {
  let workshop: Workshop;
  let first: TestRelease;
  let path: string;

  before(async () => {
    workshop = await openWorkshop({ release: { version: '4.20.3', previous: ['4.19.12'] } });
    // The base layers are those of the other release.
    const components = ['cli', 'etcd', 'old'];
    first = await addRelease(workshop, { version: '4.19.12', previous: ['4.18.20'], components });
    path = await workshop.make({ version: '4.20.3,4.19.12' });
    expect(workshop.release.version).to.equal('4.20.3');
  });
  after(() => workshop.close());

  const trust = (): string => `--trust-fingerprint=${workshop.key.fingerprint}`;
  const run = (verb: string, ...args: string[]) => runProgram(workshop.folder, verb, [path, trust(), ...args]);
  const change = (name: string, edit: (bundle: UnpackedBundle) => void): Promise<string> =>
    repack(path, join(workshop.folder, name), edit);
  const readMetadata = async (file: string): Promise<BundleMetadata> => {
    const bundle = await openBundle(file, makeContext());
    await bundle[Symbol.asyncDispose]();
    return bundle.metadata;
  };

  it('lists the releases in the order of the updates, and has each blob once', async () => {
    expect(basename(path)).to.equal('upgrade-4.20.3-x86_64-via-4.19.12.tar');
    const metadata = await readMetadata(path);
    const { formatVersion, version, release, releases = [], images, blobs } = metadata;
    expect({ formatVersion, version, release }).to.deep.equal({
      formatVersion: 2,
      version: '4.20.3',
      release: workshop.release.pullspec,
    });
    expect(releases.map((each) => each.version)).to.deep.equal(['4.19.12', '4.20.3']);
    expect(images).to.have.members([...pullspecsOf(first), ...pullspecsOf(workshop.release)]);
    expect(new Set(blobs.map(({ digest }) => digest)).size).to.equal(blobs.length);
    const sum = blobs.reduce((total, { size }) => total + size, 0);
    expect(releases.reduce((total, { bytes }) => total + bytes, 0)).to.equal(sum);
    const alone = await workshop.make({ version: '4.20.3', output: join(workshop.folder, 'alone') });
    const single = await readMetadata(alone);
    expect(single).to.include({ formatVersion: 1 }).and.not.to.have.property('releases');
    expect(releases[1]?.bytes).to.be.lessThan(single.blobs.reduce((total, { size }) => total + size, 0));
  });

  it('is left as it is by a second run, and differs from a bundle of its last release', async () => {
    const again = await workshop.create({ version: '4.19.12,4.20.3' });
    expect(again.stdout).to.match(/^Nothing to do/);
    expect(await readdir(workshop.output)).to.have.members(
      ['', '.sha256', '.yaml'].map((end) => `${basename(path)}${end}`),
    );
  });

  it('is made with a warning, also the second time, if no update leads from one release to the next', async () => {
    await addRelease(workshop, { version: '4.18.20', components: ['cli'] });
    const options = { version: '4.18.20,4.20.3', output: join(workshop.folder, 'gap') };
    for (const words of [/^(?!Nothing to do)/, /^Nothing to do/]) {
      const { stdout, stderr } = await workshop.create(options);
      expect(stdout).to.match(words);
      expect(stderr).to.include('warning: release 4.20.3 has no direct update from 4.18.20');
    }
  });

  it('is verified with the signature of every release', async () => {
    const outcome = await run('verify');
    expect(outcome.code, outcome.stdout + outcome.stderr).to.equal(0);
    expect(outcome.stdout)
      .to.match(/Release +4\.19\.12, 4\.20\.3 x86_64/)
      .and.to.include(first.pullspec);
    const config = `config/signature/sha256/${first.digest.slice(7, 23)}.yaml`;
    const unsigned = await change('unsigned.tar', ({ files }) => void files.delete(config));
    const refused = await runProgram(workshop.folder, 'verify', [unsigned, trust()]);
    expect(refused.code).to.equal(1);
    expect(refused.stdout).to.match(new RegExp(`^ *unsigned .*${first.digest}`, 'm'));
    const push = ['--to=localhost:1/a/b', '--insecure', trust()];
    const { stderr } = await runProgram(workshop.folder, 'push', [unsigned, ...push]);
    expect(stderr).to.match(/^error \([a-z-]+\): .*no signature|^error \([a-z-]+\): .*not signed|unsigned/m);
  });

  it('is refused if the metadata says something else about a release', async () => {
    const changes: [string, (releases: BundledRelease[]) => BundledRelease[], RegExp][] = [
      ['bytes', ([a, b]) => (a && b ? [{ ...a, bytes: a.bytes + 1 }, b] : []), /says that 4\.19\.12 adds \d+ bytes/],
      ['previous', ([a, b]) => (a && b ? [{ ...a, previous: ['4.18.1'] }, b] : []), /previous/],
      ['order', (releases) => releases.toReversed(), /malformed releases/],
      ['one', (releases) => releases.slice(1), /malformed releases/],
    ];
    for (const [name, edit, message] of changes) {
      const path = await change(`${name}.tar`, (bundle) => {
        bundle.metadata = { ...bundle.metadata, releases: edit([...(bundle.metadata.releases ?? [])]) };
      });
      const { code, stdout, stderr } = await runProgram(workshop.folder, 'verify', [path, trust()]);
      expect(code, name).to.equal(1);
      expect(stdout + stderr, name).to.match(message);
    }
  });

  it('is shown with the sizes of each release', async () => {
    const { stdout } = await runProgram(workshop.folder, 'inspect', [path]);
    expect(stdout).to.match(/^OpenShift 4\.19\.12, 4\.20\.3 for x86_64/);
    expect(stdout).to.match(/^ +Updates +from 4\.18\.20$/m);
    expect(stdout).to.match(/^RELEASE +IMAGES +ADDS +TOTAL +KNOWN RISKS\n4\.19\.12 +4 .*\n4\.20\.3 +5 /m);
    expect(stdout).to.match(/^4\.19\.12\/etcd/m);
  });

  it('is pushed with the tags of every release', async () => {
    await using target = await startRegistry();
    const outcome = await run('push', `--to=${target.host}/openshift/release`, '--insecure');
    expect(outcome.code, outcome.stderr).to.equal(0);
    const { tags } = target.content.repositories.get('openshift/release') ?? {};
    expect(tags?.get('4.19.12-x86_64')).to.equal(first.digest);
    expect(tags?.get('4.20.3-x86_64')).to.equal(workshop.release.digest);
    expect(tags?.get('4.19.12-x86_64-old')).to.equal(first.images.get('old')?.digest);
  });

  it('is mirrored with every release and the configuration of each', async () => {
    const mirror = `${workshop.folder}/mirror`;
    const args = [path, `--to-dir=${mirror}`, trust()];
    const { code, stderr } = await runExecutable('oc-adm_release_mirror_config', workshop.folder, args);
    expect(code, stderr).to.equal(0);
    const tags = await readdir(join(mirror, 'v2/openshift/release/manifests'));
    expect(tags).to.include.members([
      '4.19.12-x86_64',
      '4.19.12-x86_64-old',
      '4.20.3-x86_64',
      '4.20.3-x86_64-rhel-coreos-8',
    ]);
    expect(await readdir(join(mirror, 'config/signature/sha256'))).to.have.length(2);
    const oneTag = `--to-release-image=${workshop.registry.host}/release:latest`;
    const refused = await runExecutable('oc-adm_release_mirror_config', workshop.folder, [...args, oneTag]);
    expect([refused.code, refused.stderr]).to.deep.equal([
      2,
      'error (usage): --to-release-image has one tag, and several releases need one each\nhint: Put ${version} ' +
        'into the tag, such as REGISTRY/REPOSITORY:${version}-x86_64.\n',
    ]);
  });

  it('is checked by lint with every release', async () => {
    const { stdout, stderr } = await runProgram(workshop.folder, 'lint', [path, '-o', 'json']);
    const report = JSON.parse(stdout) as LintReport;
    expect(report.version, stderr).to.equal('4.19.12, 4.20.3');
    expect(report.knowsImages).to.equal(true);
    const single = await runProgram(workshop.folder, 'lint', [workshop.release.pullspec, '-o', 'json', '--insecure']);
    expect(report.files).to.be.above((JSON.parse(single.stdout) as LintReport).files);
  });

  it('is compared release by release', async () => {
    const alone = await workshop.make({ version: '4.19.12', output: join(workshop.folder, 'first') });
    const { stdout } = await runProgram(workshop.folder, 'diff', [alone, path, '-o', 'json']);
    const { from, to, steps = [] } = JSON.parse(stdout) as ReleaseDiff;
    expect([from.version, to.version]).to.deep.equal(['4.19.12', '4.20.3']);
    const versions = steps.map((step) => [step.from.version, step.to.version]);
    expect(versions).to.deep.equal([
      ['4.19.12', '4.19.12'],
      ['4.19.12', '4.20.3'],
    ]);
    expect([steps[0]?.images, steps[0]?.added.blobs]).to.deep.equal([[], 0]);
    const words = (await runProgram(workshop.folder, 'diff', [alone, path])).stdout;
    expect(words).to.match(/^ +4\.19\.12 → 4\.20\.3: \d+ components differ, .* in \d+ blobs are new$/m);
    expect((await runProgram(workshop.folder, 'diff', [alone, path, '-o', 'html'])).stdout).to.match(
      /4\.19\.12 → 4\.20\.3/,
    );
  });

  it('has the releases on the shortest path of updates, with the texts of known risks', async () => {
    const nodes = ['4.18.20', '4.19.12', '4.20.3'].map((version) => ({ version, payload: first.pullspec }));
    const conditionalEdges = [
      { edges: [{ from: '4.18.20', to: '4.19.12' }], risks: [{ name: 'SlowDisks', message: 'Disks\nare slow.' }] },
    ];
    const graph = JSON.stringify({ nodes, edges: [[1, 2]], conditionalEdges });
    (workshop.signatures.files as Map<string, string>).set('/graph', graph);
    const planned = await workshop.make({
      version: '4.20.3',
      'path-from': '4.18.20',
      'graph-url': `${workshop.signatures.url}/graph`,
      'accept-risk': 'SlowDisks',
      output: join(workshop.folder, 'planned'),
    });
    expect(basename(planned)).to.equal(basename(path));
    const site = formatSiteReport({
      formatVersion: 1,
      created: '',
      tool: '',
      version: '4.18.20',
      arch: 'x86_64',
      channel: '',
      history: [],
      nodes: [],
      findings: [],
      operators: [],
    });
    const forSite = await workshop.make({
      version: '4.20.3',
      for: await workshop.write('site.json', site),
      arch: undefined,
      'accept-risk': 'SlowDisks',
      'graph-url': `${workshop.signatures.url}/graph`,
      output: join(workshop.folder, 'site'),
    });
    expect(basename(forSite)).to.equal(basename(path));
    const { releases = [] } = await readMetadata(planned);
    expect(releases.map(({ risks }) => risks)).to.deep.equal([
      [{ name: 'SlowDisks', message: 'Disks are slow.', url: '' }],
      [],
    ]);
    const { stdout } = await runProgram(workshop.folder, 'inspect', [planned]);
    expect(stdout)
      .to.match(/^4\.19\.12 .* SlowDisks$/m)
      .and.to.match(/^SlowDisks: Disks are slow\. \(the bundle says, not verified\)$/m);
  });

  it('is refused if a known risk of its updates is not accepted', async () => {
    const nodes = ['4.19.12', '4.20.3'].map((version) => ({ version, payload: first.pullspec }));
    const risks = [
      { name: 'SlowDisks', message: 'Disks are slow.', url: 'https://a.test' },
      { name: 'Lost', message: 'x' },
    ];
    const conditionalEdges = [{ edges: [{ from: '4.19.12', to: '4.20.3' }], risks }];
    const graph = JSON.stringify({ nodes, edges: [], conditionalEdges });
    (workshop.signatures.files as Map<string, string>).set('/risky', graph);
    const options = {
      version: '4.20.3',
      'path-from': '4.19.12',
      'graph-url': `${workshop.signatures.url}/risky`,
      output: join(workshop.folder, 'risky'),
    };
    const { code, stderr } = await workshop.create({ ...options, 'accept-risk': ['Lost', 'Other'] });
    expect(code).to.equal(1);
    expect(stderr)
      .to.contain('no update on the path has the risk Other\n')
      .and.to.contain(
        'error (not-recommended): known risks of the updates are not accepted:\n' +
          '  the update to 4.20.3 has the risk SlowDisks: Disks are slow. https://a.test\n',
      );
    expect(stderr).to.contain('--accept-risk').and.not.to.contain('risk Lost:');
    const { risks: carried } = await readMetadata(
      await workshop.make({ ...options, 'accept-risk': ['SlowDisks', 'Lost'] }),
    );
    expect(carried).to.deep.equal([risks[0], { ...risks[1], url: '' }]);
    const [made = ''] = await readdir(join(workshop.folder, 'risky'));
    const { stdout } = await runProgram(workshop.folder, 'inspect', [join(workshop.folder, 'risky', made)]);
    expect(stdout).to.match(
      /^ *Risk +SlowDisks: Disks are slow\. https:\/\/a\.test \(the bundle says, not verified\)$/m,
    );
  });

  it('has a plan for the update to each release', async () => {
    await using bundle = await openBundle(path, makeContext());
    const trusted = { keyrings: [], fingerprints: [workshop.key.fingerprint], allowUnsigned: false };
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    const plan = await planUpdate(bundle, { ...trusted, fetchFile }, makeContext());
    expect([...(plan.earlier ?? []), plan].map(({ version, previous }) => [version, ...previous])).to.deep.equal([
      ['4.19.12', '4.18.20'],
      ['4.20.3', '4.19.12'],
    ]);
  });
});
