/**
 * Measures the size of a packaged executable and the time of its `--help`, compared with the built one on the pinned
 * Node.js.
 */
import { execFileSync } from 'node:child_process';
import { mkdtemp, readdir, rm, stat, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { measure, median } from './measure.ts';

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
    const packaged = await start([join(folder, name)]);
    const built = await start([process.execPath, `${folder}/built/bin/${name}`]);
    console.log(`${name} --help: ${packaged}; built, on Node.js: ${built}`);
  }
} finally {
  await rm(folder, { recursive: true, force: true });
}

async function start(command: readonly string[]): Promise<string> {
  const runs = [];
  for (let run = 0; run < times; run += 1) runs.push(await measure([...command, '--help']));
  const milliseconds = (seconds: number): string => `${(seconds * 1000).toFixed(0)} ms`;
  const [wall, cpu] = [median(runs.map((run) => run.wall)), median(runs.map((run) => run.cpu))];
  return `${milliseconds(wall)} (${milliseconds(cpu)} of CPU)`;
}
