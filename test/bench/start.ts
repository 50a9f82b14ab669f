/**
 * Measures the size of a packaged executable and the time of its `--help`, compared with the built one on the pinned
 * Node.js.
 */
import { execFileSync } from 'node:child_process';
import { mkdtemp, readdir, rm, stat, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { measure, race } from './measure.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const names = ['oc-adm_upgrade_bundle', 'oc-adm_release_mirror_config', 'oc-adm_mirror_registry'];
const times = 9;

const folder = await mkdtemp(join(tmpdir(), 'start-'));
try {
  const platform = `${process.platform}-${process.arch}`;
  execFileSync(process.execPath, [`${root}/.config/build.ts`, `${folder}/built`]);
  execFileSync(process.execPath, [`${root}/.config/package.ts`, `${folder}/packages`, platform], { stdio: 'ignore' });
  const [archive = ''] = (await readdir(`${folder}/packages`)).filter((name) =>
    /^oc-disconnected.*\.tar\.gz$/.test(name),
  );
  execFileSync('tar', ['-xf', `${folder}/packages/${archive}`, '-C', folder]);
  const size = async (path: string): Promise<string> => `${((await stat(path)).size / 1e6).toFixed(1)} MB`;
  console.log(
    `${archive}: ${await size(`${folder}/packages/${archive}`)}, unpacked ${await size(`${folder}/oc-disconnected`)}`,
  );
  for (const name of names) {
    await symlink('oc-disconnected', join(folder, name));
    const packaged = () => measure([join(folder, name), '--help']);
    const built = () => measure([process.execPath, `${folder}/built/bin/${name}`, '--help']);
    const node = () => measure([process.execPath, '-e', '0']);
    await race(`${name} --help`, { packaged, 'the built one on Node.js': built, 'node -e 0': node }, times);
  }
} finally {
  await rm(folder, { recursive: true, force: true });
}
