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

  it('makes one file that runs by itself in any folder', async () => {
    const executable = join(folder, 'oc-adm_upgrade_bundle');
    await copyFile(join(folder, 'dist/bin/oc-adm_upgrade_bundle'), executable);
    await rm(join(folder, 'dist'), { recursive: true });
    const environment = { PATH: `${join(root, 'node_modules/.bin')}:/usr/bin:/bin` };
    const { stdout, stderr } = await execute(executable, ['--help'], { cwd: folder, env: environment });
    expect(stdout).to.match(/^Put everything/);
    expect(stderr).to.equal('');
  });
});
