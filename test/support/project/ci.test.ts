import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { requirePeer, run, type RunResult } from '../peers.ts';

const own = fileURLToPath(new URL('../../../.ci/', import.meta.url));

/** Replaces mocha: does what the test file describes. */
const mocha = `
const { spawn } = require('node:child_process');
const { readFileSync, writeFileSync } = require('node:fs');
const report = { passed: 0, failed: 0, skipped: [], times: {} };
for (const path of process.argv.slice(2)) {
  const [what, more = ''] = readFileSync(path, 'utf8').trim().split(' ');
  console.log('ran ' + path);
  if (what === 'die') process.kill(process.pid, 'SIGKILL');
  if (what === 'block') for (;;);
  if (what === 'leave') console.log('left ' + spawn('sleep', ['60'], { stdio: 'inherit' }).pid);
  if (what === 'exit') process.exit(0);
  if (what === 'litter') writeFileSync(process.env.TMPDIR + '/litter', process.env.TMPDIR);
  if (what === 'pass') report.passed += Number(more);
  if (what === 'fail') report.failed += 1;
  if (what === 'skip') report.skipped.push(more);
  report.times[path] = 5;
}
writeFileSync(process.env.TEST_REPORT, JSON.stringify(report));
process.exit(report.failed);`;

describe('.ci', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'ci-'));
    for (const folder of ['.ci', 'bin', 'test/system', 'node_modules/mocha/bin'])
      await mkdir(join(root, folder), { recursive: true });
    for (const name of ['test.mjs', 'run']) await copyFile(join(own, name), join(root, '.ci', name));
    await writeFile(join(root, 'node_modules/mocha/bin/mocha.js'), mocha);
  });
  afterEach(() => rm(root, { recursive: true, force: true }));

  const write = (name: string, text: string): Promise<void> => writeFile(join(root, 'test', name), text);
  const runTests = (...args: string[]): Promise<RunResult> =>
    run(process.execPath, [join(root, '.ci/test.mjs'), ...args]);

  describe('test.mjs', () => {
    it('runs all files but the whole-system suites, or those alone, and adds up what they say', async () => {
      await write('a.test.ts', 'pass 3');
      await write('b.test.ts', 'skip suite');
      await write('system/c.test.ts', 'pass 5');
      const { code, stdout } = await runTests();
      expect(stdout)
        .to.match(/\n3 passed, 0 failed, 1 skipped\n$/)
        .and.to.match(/SKIPPED \(1\):\n {4}- suite\n/);
      expect(code).to.equal(0);
      expect((await runTests('system')).stdout).to.match(/\n5 passed, 0 failed, 0 skipped\n$/);
    });

    it('counts files whose process dies as a failure, and runs the others', async () => {
      await write('a.test.ts', `die ${'x'.repeat(50_000)}`);
      await write('b.test.ts', 'pass 3');
      const { code, stdout } = await runTests();
      expect(stdout)
        .to.match(/\n3 passed, 1 failed, 0 skipped\n$/)
        .and.to.include('FAILED  test/a.test.ts ended with SIGKILL');
      expect(code).to.equal(1);
    });

    it('names all files of a process that dies, and runs each again alone', async () => {
      await write('a.test.ts', 'die');
      await write('b.test.ts', 'pass 3');
      await write('c.test.ts', 'pass 4');
      const { stdout } = await runTests();
      expect(stdout).to.match(/\n7 passed, 2 failed, 0 skipped\n$/);
      const failed = [...stdout.matchAll(/^ {2}FAILED {2}(.*) ended with SIGKILL$/gm)].map(([, paths]) =>
        paths?.split(' ').sort(),
      );
      expect(failed).to.deep.equal([['test/a.test.ts', 'test/b.test.ts', 'test/c.test.ts'], ['test/a.test.ts']]);
    });

    it('runs the files in the random order of a seed', async () => {
      const names = Array.from('abcdefgh', (letter) => `test/${letter}.test.ts`);
      for (const name of names) await write(name.slice(5), 'pass 1');
      const orderOf = async (seed: string): Promise<(string | undefined)[]> => {
        const env = { ...process.env, TEST_SEED: seed };
        const { stdout } = await run(process.execPath, [join(root, '.ci/test.mjs'), '--shuffle'], { env });
        expect(stdout)
          .to.include(`TEST_SEED=${seed}\n`)
          .and.to.match(/\n8 passed, 0 failed, 0 skipped\n$/);
        return [...stdout.matchAll(/^ran (.*)$/gm)].map(([, path]) => path);
      };
      const order = await orderOf('one');
      expect(order)
        .to.have.members(names)
        .and.not.to.deep.equal(await orderOf('two'));
      expect(await orderOf('one')).to.deep.equal(order);
    });

    it('removes the temporary files that tests left, and names them', async () => {
      await write('a.test.ts', 'litter');
      const env = { ...process.env, TMPDIR: root };
      const { stdout } = await run(process.execPath, [join(root, '.ci/test.mjs')], { env });
      expect(stdout).to.include('  LEFT  litter in the temporary folder, by test/a.test.ts\n');
      expect((await readdir(root)).filter((name) => name.startsWith('tests-'))).to.deep.equal([]);
    });

    it('counts files as a failure whose process ends before its tests do', async () => {
      await write('a.test.ts', 'exit');
      const { code, stdout } = await runTests();
      expect(stdout).to.match(/\n {2}FAILED {2}test\/a\.test\.ts ended with 0\n[^]*\n0 passed, 1 failed, 0 skipped\n$/);
      expect(code).to.equal(1);
    });

    it('ends a process that is blocked', async () => {
      await write('a.test.ts', 'block');
      const env = { ...process.env, TEST_LIMIT: '1000' };
      const { code, stdout } = await run(process.execPath, [join(root, '.ci/test.mjs')], { env });
      expect(stdout).to.match(
        /\n {2}FAILED {2}test\/a\.test\.ts did not end in 1 s\n[^]*\n0 passed, 1 failed, 0 skipped\n$/,
      );
      expect(code).to.equal(1);
    });

    it('does not wait for a program that a test left running', async () => {
      await write('a.test.ts', 'leave');
      const { code, stdout } = await runTests();
      // Throws an error if the program has ended.
      process.kill(Number(/^left (\d+)$/m.exec(stdout)?.[1]), 'SIGKILL');
      expect(stdout).to.match(/\n0 passed, 0 failed, 0 skipped\n$/);
      expect(code).to.equal(0);
    });
  });

  describe('run', function () {
    requirePeer(this, 'bash');

    async function runAll(npm: string): Promise<RunResult> {
      await writeFile(join(root, 'bin/npm'), `#!/bin/bash\nname=\${!#}\n${npm}\n`, { mode: 0o755 });
      const env = { ...process.env, PATH: `${join(root, 'bin')}:${process.env['PATH'] ?? ''}` };
      return run('bash', [join(root, '.ci/run')], { env });
    }

    it('adds up both kinds of tests and four more', async () => {
      const { code, stdout } = await runAll(`[[ $name != test* ]] || echo "2 passed, 0 failed, 1 skipped"`);
      expect(stdout).to.match(/\n8 passed, 0 failed, 2 skipped\n$/);
      expect(code).to.equal(0);
    });

    it('ends with its line when a part dies without one', async () => {
      const { code, stdout } = await runAll(`[[ $name != test ]] || kill -9 $$`);
      expect(stdout)
        .to.match(/\n4 passed, 1 failed, 0 skipped\n$/)
        .and.to.match(/^FAILED: npm run test ended with 137$/m);
      expect(code).to.equal(1);
    });

    it('ends with its line when it is ended', async () => {
      await writeFile(join(root, 'bin/npm'), '#!/bin/bash\necho waiting\nexec sleep 60\n', { mode: 0o755 });
      const env = { ...process.env, PATH: `${join(root, 'bin')}:${process.env['PATH'] ?? ''}` };
      // In its own process group, as in a terminal, so that its children end too.
      const child = spawn('bash', [join(root, '.ci/run')], {
        ...{ env, detached: true, stdio: ['ignore', 'pipe', 'ignore'] },
      });
      let stdout = '';
      child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
      await once(child.stdout, 'data');
      process.kill(-(child.pid ?? NaN), 'SIGTERM');
      const [code] = (await once(child, 'close')) as [number | null];
      expect(stdout).to.match(/\n0 passed, [1-9] failed, 0 skipped\n$/);
      expect(code).to.equal(1);
    });
  });
});
