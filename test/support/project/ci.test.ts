import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, readFileSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { requirePeer, run, type RunResult } from '../peers.ts';

const project = fileURLToPath(new URL('../../../', import.meta.url));

/** Makes the text of a test file with one test. */
const makeTest = (body: string): string => `it('has a title', async () => {\n  ${body}\n});\n`;
const passing = makeTest('');

describe('.ci', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'ci-'));
    for (const folder of ['.ci', 'bin', 'test/system', 'test/support', 'node_modules'])
      await mkdir(join(root, folder), { recursive: true });
    for (const name of [
      '.ci/test.mjs',
      '.ci/worker.mjs',
      '.ci/run',
      'test/support/environment.ts',
      'test/support/clientIndex.ts',
    ])
      await copyFile(join(project, name), join(root, name));
    for (const name of ['test/support/reporter.ts', '.mocharc.json', 'package.json'])
      await copyFile(join(project, name), join(root, name));
    await symlink(join(project, 'node_modules/mocha'), join(root, 'node_modules/mocha'));
  });
  afterEach(() => rm(root, { recursive: true, force: true }));

  const write = (name: string, text: string): Promise<void> => writeFile(join(root, 'test', name), text);
  /** Runs .ci/test.mjs with two processes, because each takes as long to start as a file with small tests. */
  const runTests = (args: readonly string[] = [], variables: NodeJS.ProcessEnv = {}): Promise<RunResult> => {
    const env = { ...process.env, TEST_PROCESSES: '2', ...variables };
    return run(process.execPath, [join(root, '.ci/test.mjs'), ...args], { env });
  };

  describe('test.mjs', () => {
    it('runs all files but the whole-system suites, or those alone, and adds up their tests', async () => {
      await write('a.test.ts', passing.repeat(3));
      await write('b.test.ts', "it.skip('is skipped');");
      await write('system/c.test.ts', passing.repeat(5));
      const { code, stdout } = await runTests();
      expect(stdout)
        .to.match(/\n3 passed, 0 failed, 1 skipped\n$/)
        .and.to.match(/SKIPPED \(1\):\n {4}- is skipped\n/);
      expect(code).to.equal(0);
      expect((await runTests(['system'])).stdout).to.match(/\n5 passed, 0 failed, 0 skipped\n$/);
    });

    it('prints why a test failed, and counts it', async () => {
      await write('a.test.ts', makeTest("throw new Error('the reason');"));
      const { code, stdout } = await runTests();
      expect(stdout)
        .to.include('FAILED  has a title\n')
        .and.to.include('Error: the reason')
        .and.to.match(/\n0 passed, 1 failed, 0 skipped\n$/);
      expect(code).to.equal(1);
    });

    for (const [what, body, end] of [
      ['kills its process', "process.kill(process.pid, 'SIGKILL');", 'ended with SIGKILL'],
      ['ends its process', 'process.exit(0);', 'ended with 0'],
      ['blocks its process', 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);', 'did not end in 5 s'],
    ] as const)
      it(`names a file that ${what}, and runs the others`, async () => {
        await write('a.test.ts', makeTest(body));
        for (const name of 'bcdefgh') await write(`${name}.test.ts`, passing);
        const { code, stdout } = await runTests([], { TEST_LIMIT: '5000' });
        expect(stdout)
          .to.match(/\n7 passed, 1 failed, 0 skipped\n$/)
          .and.to.include(`  FAILED  test/a.test.ts ${end}\n`);
        expect(code).to.equal(1);
      });

    it('counts a file that cannot be loaded as a failure', async () => {
      await write('a.test.ts', 'import "./nowhere.ts";');
      const { code, stdout } = await runTests();
      expect(stdout).to.match(/ {2}FAILED {2}test\/a\.test\.ts ended with 1\n[^]*\n0 passed, 1 failed, 0 skipped\n$/);
      expect(code).to.equal(1);
    });

    it('runs the files in the random order of a seed', async () => {
      const names = Array.from('abcdefgh', (letter) => `test/${letter}.test.ts`);
      for (const name of names) await write(name.slice(5), `console.log('ran ${name}');${passing}`);
      const orderOf = async (seed: string): Promise<(string | undefined)[]> => {
        // One process runs them all, so that the output has their order.
        const { stdout } = await runTests(['--shuffle'], { TEST_SEED: seed, TEST_PROCESSES: '1' });
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

    // A test with a limit of its own fails on a machine that is busier than its author's.
    it('alone limits the time of a test', () => {
      const files = globSync('test/**/*.ts', { cwd: project });
      const limited = files.filter((path) => /\bthis\.timeout\([1-9]/.test(readFileSync(join(project, path), 'utf8')));
      expect(files).to.have.length.above(300);
      expect(limited).to.deep.equal([]);
    });

    it('removes the temporary files that tests left, and names them', async () => {
      const litter = "(await import('node:fs')).writeFileSync(process.env.TMPDIR + '/litter', '');";
      await write('a.test.ts', makeTest(litter));
      const { stdout } = await runTests([], { TMPDIR: root });
      expect(stdout).to.include('  LEFT  litter in the temporary folder, by test/a.test.ts\n');
      expect((await readdir(root)).filter((name) => name.startsWith('tests-'))).to.deep.equal([]);
    });

    it('does not wait for a program that a test left running', async () => {
      const leave = "const child = (await import('node:child_process')).spawn('sleep', ['60'], { stdio: 'ignore' });";
      await write('a.test.ts', makeTest(`${leave}\n  console.log('left ' + child.pid);`));
      const { code, stdout } = await runTests();
      // Throws an error if the program has ended.
      process.kill(Number(/^left (\d+)$/m.exec(stdout)?.[1]), 'SIGKILL');
      expect(stdout).to.match(/\n1 passed, 0 failed, 0 skipped\n$/);
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
        env,
        detached: true,
        stdio: ['ignore', 'pipe', 'ignore'],
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
