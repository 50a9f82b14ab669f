import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  expectFailure,
  openWorkshop,
  type ProgramOptions,
  runProgram,
  type Workshop,
} from '../../../support/content/creation.ts';
import { executeProgram } from '../../../support/program/execution.ts';
import { extraImage } from '../../../support/release/extraImage.ts';

describe('oc adm-upgrade-bundle create', () => {
  let workshop: Workshop;
  before(async () => {
    workshop = await openWorkshop();
    await workshop.create();
  });
  after(() => workshop.close());

  it('prints the bundle’s path, size and digest, the release and its signer', async () => {
    await rm(workshop.output, { recursive: true, force: true });
    const { code, stdout, stderr } = await workshop.create();
    expect(code, stderr).to.equal(0);
    expect(stdout.split('\n').map((line) => line.slice(0, 12).trim())).to.deep.equal([
      'Created',
      'Bundle',
      'Size',
      'Digest',
      'Release',
      'Version',
      'Signed by',
      'Images',
      'Fetched',
      'Files to car',
      ...['', '.sha256', '.yaml'].map((suffix) => `  ${workshop.bundle}${suffix}`.slice(0, 12).trim()),
      'oc-adm_upg',
      'At the site,',
      'oc adm-upg',
      '',
    ]);
    expect(stdout).to.match(/\n {2}oc adm-upgrade-bundle verify upgrade-\S+\.tar --\S+.*\n$/);
    expect(stderr).to.match(/^fetching [\d.]+ \w+ in \d+ blobs of 5 images; \/\S* has \d.* free$/m);
    for (const suffix of ['', '.sha256', '.yaml']) expect(stdout).to.include(`${workshop.bundle}${suffix}\n`);
    expect(stdout).to.include(workshop.release.pullspec);
    expect(stdout).to.include(`Test release key <release@example.com> (${workshop.key.fingerprint})`);
  });

  it('adds the images of a list, from a file or the standard input', async () => {
    const { host: registry, content } = workshop.registry;
    const [first, second] = ['a', 'b'].map((seed) => extraImage({ registry, repository: `tools/${seed}`, seed }));
    for (const each of [first, second]) each?.addTo(content);
    const list = `# tools\n\n${first?.tagged ?? ''}  # the first\r\n${second?.pullspec ?? ''}\n`;
    const file = await workshop.write('images.txt', list);
    const options = workshop.options({ 'dry-run': true, output: join(workshop.folder, 'listed') });
    const run = (...more: string[]): Promise<{ code: number; stdout: string; stderr: string }> =>
      executeProgram('oc-adm_upgrade_bundle', ['create', ...options, ...more], { stdin: list });
    for (const name of [file, '-']) {
      const { code, stdout, stderr } = await run(`--images-from=${name}`);
      expect(code, stderr).to.equal(0);
      expect(stdout).to.match(/Images +7 \(/);
    }
    const bad = await run(`--images-from=${await workshop.write('bad.txt', '# x\nquay.io/a/b:1\nhttps://x/y\n')}`);
    expect(bad.code).to.equal(1);
    expect(bad.stderr).to.match(/bad\.txt, line 3: a URL is not an image reference/);
  });

  it('gives the same as JSON, alone on stdout', async () => {
    const { stdout } = await workshop.create({ o: 'json', 'verify-existing': true });
    const result = JSON.parse(stdout) as Record<string, unknown>;
    expect(result).to.include({
      path: workshop.bundle,
      outcome: 'unchanged',
      version: '4.12.4',
      arch: 'x86_64',
      images: 5,
      isRead: true,
    });
    expect(result).to.have.keys(
      'outputVersion',
      'path',
      'outcome',
      'version',
      'arch',
      'release',
      'size',
      'digest',
      'isRead',
      'fetched',
      'images',
      'blobs',
      'signatures',
    );
  });

  it('takes Go’s names of architectures', async () => {
    expect((await workshop.create({ arch: 'amd64' })).stdout).to.match(/^Nothing to do/);
  });

  it('takes the version as its argument, and only once', async () => {
    const run = (version: string | undefined) =>
      executeProgram('oc-adm_upgrade_bundle', ['create', '4.12.4', ...workshop.options({ version, o: 'json' })]);
    const { code, stdout, stderr } = await run(undefined);
    expect(code, stderr).to.equal(0);
    expect(JSON.parse(stdout)).to.include({ outcome: 'unchanged', version: '4.12.4' });
    expect((await run('4.12.4')).stderr).to.match(
      /^error \([a-z-]+\): give only one of the version 4\.12\.4 and --version/,
    );
  });

  it('refuses --overwrite without a drive', async () => {
    const { code, stderr } = await workshop.create({ overwrite: true });
    expect(code).to.equal(2);
    expect(stderr).to.contain('--overwrite needs --device');
  });

  it('says nothing but the result with --quiet', async () => {
    const { stdout, stderr } = await workshop.create({ quiet: true, output: `${workshop.output}-quiet` });
    expect(stderr).to.equal('');
    expect(stdout).to.match(/^Created/);
  });

  it('takes the pull secret under its other names', async () => {
    const secret = await workshop.writePullSecret('a', 'b');
    for (const name of ['pull-secret', 'registry-config', 'a']) {
      expect((await workshop.create({ [name]: secret })).code).to.equal(0);
    }
  });

  const wrong: readonly (readonly [what: string, changes: ProgramOptions, message: RegExp])[] = [
    [
      'neither a version nor an image',
      { version: undefined },
      /^error \([a-z-]+\): give a version, or --release-image/m,
    ],
    [
      'both a version and an image',
      { 'release-image': 'quay.io/a/b:c' },
      /^error \([a-z-]+\): give only one of --version and --release-image$/m,
    ],
    ['an architecture that there is not', { arch: 'x86' }, /arch/],
    ['half a version', { version: '4.12' }, /4\.12\.0/],
    [
      'an image without tag and digest',
      { version: undefined, 'release-image': 'quay.io/a/b' },
      /neither a tag nor a digest/,
    ],
    ['an image that cannot be one', { version: undefined, 'release-image': 'BAD//x' }, /--release-image: “BAD\/\/x”/],
    ['a repository with a tag', { 'release-repository': 'quay.io/a/b:c' }, /--release-repository: .*tag/],
    [
      'a URL for an image',
      { 'extra-image': 'https://me:secret@quay.io/a' },
      /--extra-image: a URL.*\nhint:.* quay\.io\/a$/m,
    ],
    ['a fingerprint that is none', { 'trust-fingerprint': 'abc' }, /--trust-fingerprint: “abc”/],
    ['a signature store of another kind', { 'signature-store': 'ftp://a/b' }, /--signature-store: /],
    ['too many transfers', { 'max-per-registry': '65' }, /from 1 to 64/],
  ];
  for (const [what, changes, message] of wrong) {
    it(`refuses ${what} with exit code 2 and a hint`, async () => {
      const before = workshop.registry.requests.length;
      const outcome = await workshop.create({ output: `${workshop.output}-wrong`, ...changes });
      expect(workshop.registry.requests).to.have.lengthOf(before);
      await expectFailure(outcome, `${workshop.output}-wrong`, [/^error \([a-z-]+\): /m, message, /^hint: /m], {
        exit: 2,
      });
      expect(await readdir(workshop.folder)).not.to.include('output-wrong');
    });
  }

  it('says not-found of a file or a folder that an option names and that is not there', async () => {
    for (const options of [
      { 'signature-keyring': 'nowhere.asc' },
      { 'signature-store': '/nowhere' },
      { for: 'none.json' },
    ]) {
      const outcome = await workshop.create(options);
      expect(outcome.code, outcome.stderr).to.equal(1);
      expect(outcome.stderr).to.match(/^error \(not-found\): --[a-z-]+: there is no (?:file|folder) /m);
    }
  });

  it('reads default credentials only if a registry requires some', async () => {
    await workshop.make();
    await mkdir(join(workshop.folder, '.docker'), { recursive: true });
    const config = await workshop.write('.docker/config.json', '{');
    try {
      expect(await workshop.create()).to.include({ code: 0, stderr: '' });
      const named = await workshop.create({ 'pull-secret': config });
      expect(named.code).to.equal(1);
      expect(named.stderr).to.include(config);
    } finally {
      await rm(config);
    }
  });

  it('has a help with the important options', async () => {
    const { code, stdout } = await runProgram(workshop.folder, 'create', ['--help']);
    expect(code).to.equal(0);
    for (const option of [
      '--version',
      '--arch',
      '--output',
      '--pull-secret',
      '--registry-config',
      '--release-image',
      '--from-dir',
      '--extra-image',
      '--dry-run',
    ]) {
      expect(stdout).to.include(option);
    }
  });
});
