import { cp, mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { requirePeer, run } from '../support/peers.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Replaces the parts that differ in each run. */
const settle = (text: string): string =>
  text
    .replace(/sha256:[0-9a-f]{8}(?:…|[0-9a-f]{56})/g, 'sha256:…')
    .replace(/\b[0-9A-F]{40}\b/g, 'FINGERPRINT')
    .replace(/ +/g, ' ');

describe('docs/tutorial.md', function () {
  requirePeer(this, 'bash');
  let folder: string;
  let page: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tutorial-'));
    page = await readFile(join(root, 'docs/tutorial.md'), 'utf8');
    const own = ['node_modules', '.git', 'dist', 'tutorial'].map((name) => join(root, name));
    await cp(root, folder, { recursive: true, preserveTimestamps: true, filter: (path) => !own.includes(path) });
    await symlink(join(root, 'node_modules'), join(folder, 'node_modules'));
  });
  after(() => (folder ? rm(folder, { recursive: true, force: true }) : undefined));

  it('starts background programs that do not hold a pipe open', async () => {
    const work = await mkdtemp(join(tmpdir(), 'tutorial-'));
    try {
      const script = `"$0" "$1" 2>&1 | tail -n 1; source tutorial/places; kill "$UPSTREAM" "$SITE"`;
      const args = ['-e', '-c', script, process.execPath, join(root, 'test/tutorial.ts')];
      const { code, stdout, stderr } = await run('bash', args, { cwd: work });
      expect(code, stderr).to.equal(0);
      expect(stdout).to.match(/^In tutorial: /);
    } finally {
      await rm(work, { recursive: true });
    }
  });

  it('has commands that give the printed results in their order', async () => {
    const blocks = [...page.matchAll(/^```(\w*)\n([^]*?)^```$/gm)];
    const script = blocks.filter(([, language]) => language === 'sh').map(([, , text]) => text);
    const shown = blocks
      .filter(([, language]) => language === '')
      .flatMap(([, , text = '']) => text.trim().split('\n'));
    expect(script).to.have.length(9);
    // Also stops the processes of a failed command.
    const end = `trap 'kill "$UPSTREAM" "$SITE" 2>/dev/null' EXIT\n`;
    const { code, stdout, stderr } = await run('bash', ['-e', '-c', end + script.join('')], {
      cwd: folder,
      env: { PATH: `${dirname(process.execPath)}:${process.env['PATH'] ?? ''}`, HOME: folder },
    });
    expect(code, stdout + stderr).to.equal(0);
    const printed = settle(stdout);
    for (const line of shown.map(settle)) expect(printed).to.include(line);
    expect(stdout)
      .to.match(/^ended with 1$/m)
      .and.to.match(/^upgrade-4\.20\.3-x86_64\.tar: OK$/m);
    expect(stdout).to.match(/^configmap\/sha256-[0-9a-f]{64} created$/m);
  });
});
