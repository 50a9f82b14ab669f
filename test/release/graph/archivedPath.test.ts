import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { openWorkshop } from '../../support/content/creation.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { makeArchive, soundFiles } from '../../support/release/graphArchive.ts';
import { layOutAsOc } from '../../support/release/mirrorDirectory.ts';
import { buildRelease } from '../../support/release/release.ts';

describe('resolveArchivedPath', () => {
  let folder: string;
  let archive: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'path-'));
    archive = join(folder, 'graph-data.tar');
    await writeFile(archive, makeArchive(soundFiles));
  });
  after(() => rm(folder, { recursive: true }));
  // Nothing listens there: the public graph cannot be asked.
  const env = { HTTPS_PROXY: 'http://127.0.0.1:1' };
  const list = (...args: string[]): Promise<Execution> =>
    executeProgram('oc-adm_release_mirror_config', ['list', ...args], { env });

  describe('paths from an archive and a mirror directory', () => {
    const risk = { name: 'SlowDisks', message: 'Disks are slow.', url: 'https://example.com/slow' };
    const mirrored = [
      { version: '4.12.4', previous: ['4.11.28', '4.12.2', '4.12.3'] },
      { version: '4.12.9', previous: ['4.12.3', '4.12.4'] },
      { version: '4.12.10', previous: ['4.12.4', '4.12.9'] },
    ].map((options) => buildRelease({ ...options, components: 1, releaseRepository: 'openshift/release' }));
    const find = (from: string, to: string, ...more: string[]): Promise<Execution> => {
      const files = [`--graph-data=${join(folder, 'paths.tar')}`, `--from-dir=${join(folder, 'mirror')}`];
      return list('paths', `--path-from=${from}`, `--to-version=${to}`, ...files, ...more);
    };
    const writeArchive = (...more: readonly { path: string; text: string }[]): Promise<void> => {
      const versions = ['4.11.28', '4.12.3', '4.12.4', '4.12.9+amd64', '4.12.10', '4.12.11'];
      const fast = { path: 'channels/fast-4.12.yaml', text: JSON.stringify({ name: 'fast-4.12', versions }) };
      return writeFile(join(folder, 'paths.tar'), makeArchive([...soundFiles, fast, ...more]));
    };
    const blocked = [
      { path: 'blocked-edges/4.12.9.yaml', text: 'to: 4.12.9+amd64\nfrom: 4[.]12[.]3[+].*$\n' },
      {
        path: 'blocked-edges/4.12.10-SlowDisks.yaml',
        text: JSON.stringify({ to: '4.12.10', from: '^4\\.12\\.4', ...risk, matchingRules: [{ type: 'Always' }] }),
      },
    ];
    before(async () => {
      for (const { content } of mirrored) await layOutAsOc(join(folder, 'mirror'), content);
    });
    beforeEach(() => writeArchive(...blocked));

    it('go around a blocked update, from a version that is not mirrored, and name their risks', async () => {
      const around = await find('4.12.3', '4.12.9', '-o', 'json');
      expect(around.stderr).to.equal('');
      expect(JSON.parse(around.stdout)).to.deep.include({
        channels: ['fast-4.12'],
        steps: mirrored.slice(0, 2).map(({ version, digest }) => ({
          version,
          pullspec: `quay.io/openshift-release-dev/ocp-release@${digest}`,
          risks: [],
        })),
      });
      const risky = await find('4.12.4', '4.12.10');
      expect(risky.stdout).to.match(/^VERSION.*\n4\.12\.4 +- .*\n4\.12\.10 +SlowDisks /);
      expect(risky.stderr).to.contain('known risks for some clusters: SlowDisks');
      expect(risky.stderr).to.contain('a path without known risks: 4.12.9, 4.12.10');
    });

    it('are found in a bundle', async () => {
      await using workshop = await openWorkshop();
      await workshop.create();
      const { release } = workshop;
      const bundle = `--from-dir=${join(workshop.folder, 'output', `upgrade-${release.tag}.tar`)}`;
      const { stdout } = await list(
        'paths',
        '--path-from=4.12.3',
        `--to-version=${release.version}`,
        '-o',
        'json',
        `--graph-data=${join(folder, 'paths.tar')}`,
        bundle,
      );
      const step = { version: release.version, pullspec: release.pullspec, risks: [] };
      expect(JSON.parse(stdout)).to.deep.include({ steps: [step] });
    });

    it('take the direct update if nothing blocks it', async () => {
      await writeArchive();
      const { stdout } = await find('4.12.3', '4.12.9', '-o', 'json');
      expect(
        (JSON.parse(stdout) as { steps: { version: string }[] }).steps.map(({ version }) => version),
      ).to.deep.equal(['4.12.9']);
    });

    for (const { pattern, path = 'blocked-edges/a.yaml', blocks } of [
      { pattern: '4[.]12', blocks: true },
      { pattern: '12[.]3', blocks: true },
      { pattern: '^4[.]12[.]3$', blocks: false },
      { pattern: '^4[.]12[.]3[+]amd64$', blocks: true },
      { pattern: '4[.]12[.]3[+]arm64', blocks: false },
      { pattern: '4[.]12[.](9|3])?[+]', blocks: false },
      { pattern: '.*', path: 'blocked-edges/a.yml', blocks: false },
      { pattern: '.*', path: 'blocked-edges/old/a.yaml', blocks: false },
    ]) {
      it(`are ${blocks ? '' : 'not '}blocked by ${pattern} in ${path}, as in the update service`, async () => {
        await writeArchive({ path, text: JSON.stringify({ to: '4.12.9', from: pattern }) });
        const { stdout } = await find('4.12.3', '4.12.9');
        expect(/^VERSION.*\n4\.12\.9 /.test(stdout)).to.equal(!blocks);
      });
    }

    for (const [from, to, why] of [
      ['4.11.28', '4.12.4', 'all updates are blocked'],
      ['4.12.2', '4.12.4', 'no channel has the first version'],
      ['4.12.9', '4.12.11', 'the last is not mirrored'],
      ['4.12.11', '4.12.11', 'the only one is not mirrored'],
    ] as const) {
      it(`are none from ${from} to ${to}: ${why}`, async () => {
        const { code, stderr } = await find(from, to);
        expect(code).to.equal(1);
        expect(stderr).to.contain(`no path of updates leads from ${from} to ${to}`);
      });
    }

    it('name the fault of the archive or the directory', async () => {
      expect((await find('4.12.3', '4.12.9', '--arch=s390x')).stderr).to.contain('has no release for s390x');
      for (const [text, message] of [
        ['to: 4.12.9', 'has no “to” or “from”'],
        ['to: 4.12.9\nfrom: "("', 'has a “from” that is not a pattern'],
        // The first two are refused by the update service, which reads the others differently.
        ...['4(?=.)', '(4)\\1', '\\A4[.]12', '[[:digit:]]', '[0-9&&4]', '(?i:4)'].map(
          (from) => [JSON.stringify({ to: '4.12.9', from }), 'has a “from” that is not a pattern'] as const,
        ),
        ['to: [4.12.9', 'is not YAML'],
      ] as const) {
        await writeArchive({ path: 'blocked-edges/a.yaml', text });
        const { code, stderr } = await find('4.12.3', '4.12.9');
        expect(code).to.equal(1);
        expect(stderr).to.contain(`blocked-edges/a.yaml in ${join(folder, 'paths.tar')} ${message}`);
      }
    });
  });
});
