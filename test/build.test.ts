import { execFile } from 'node:child_process';
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';

const execute = promisify(execFile);
const root = fileURLToPath(new URL('..', import.meta.url));

describe('npm run build', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'oc-disconnected-'));
    await execute(process.execPath, ['.config/build.ts', `${folder}/dist`], { cwd: root });
  });
  after(() => rm(folder, { recursive: true, force: true }));

  for (const [name, help] of [
    ['oc-adm_upgrade_bundle', /^Put everything/],
    ['oc-adm_release_mirror_config', /^Mirror a release/],
  ] as const) {
    it(`makes ${name} of one file that runs by itself in any folder`, async () => {
      const alone = await mkdtemp(join(folder, 'alone-'));
      await copyFile(join(folder, 'dist/bin', name), join(alone, name));
      const environment = { PATH: `${join(root, 'node_modules/.bin')}:/usr/bin:/bin` };
      const { stdout, stderr } = await execute(join(alone, name), ['--help'], { cwd: alone, env: environment });
      expect(stdout).to.match(help);
      expect(stderr).to.equal('');
    });
  }
});
