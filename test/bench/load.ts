// Compares `load` of a bundle with `skopeo copy` of the same images from a registry on this machine: `node
// test/bench/load.ts`, as root. Loads from a file and from a raw device. Arguments: the number of runs (5), the
// megabytes of the release (1500), and its images (60).
import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { measureInto, race } from './measure.ts';
import type { BenchRegistry } from './registry.ts';
import { images, printMachine, serveRelease } from './release.ts';
import { makeTar } from './tar.ts';

const runs = Number(process.argv[2] ?? 5);

await using served = await serveRelease('oc-adm_upgrade_bundle');
const { program, folder, release } = served;
const tar = await makeTar(program, release, join(folder, 'bundle'));
const device = execFileSync('losetup', ['--find', '--show', '--read-only', tar]).toString().trim();
try {
  await compare(release, tar, device);
} finally {
  execFileSync('losetup', ['--detach', device]);
}

async function compare(
  { pullspecs, keyring, fingerprint, bytes }: BenchRegistry,
  tar: string,
  device: string,
): Promise<void> {
  const out = join(folder, 'out');
  const trust = [`--signature-keyring=${keyring}`, `--trust-fingerprint=${fingerprint}`];
  const load = (from: string): string[] => [process.execPath, program, 'load', from, ...trust];
  const storage = join(folder, 'storage.conf');
  const main = `driver = "overlay"\ngraphroot = "${out}/main"\nrunroot = "${out}/run"\n`;
  await writeFile(storage, `[storage]\n${main}[storage.options.overlay]\nskip_mount_home = "true"\n`);
  process.env['CONTAINERS_STORAGE_CONF'] = storage;
  const list = join(folder, 'pullspecs');
  await writeFile(list, pullspecs.map((pullspec) => `${pullspec}\n`).join(''));
  const copy = 'skopeo copy -q --preserve-digests --src-tls-verify=false docker://{} containers-storage:{}';
  const skopeo = (parallel: number): string[] => ['xargs', '-a', list, `-P${parallel}`, '-I{}', ...copy.split(' ')];
  printMachine(
    `${images} images, ${(bytes / 1e6).toFixed(0)} MB, in a file, on ${device}, and in a registry on this machine`,
  );
  // `load` has the lowest priority. The other commands get it too, for a fair comparison.
  const into = (command: readonly string[]) => () => measureInto(out, ['nice', '-n', '19', ...command]);
  const peer = { 'skopeo copy, 3 at a time': into(skopeo(3)) };
  await race('load', { load: into(load(tar)), 'skopeo copy': into(skopeo(1)), ...peer }, runs);
  await race('load from a device', { load: into(load(device)), ...peer }, runs);
}
