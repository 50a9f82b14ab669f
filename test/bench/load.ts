// Compares `load` of a bundle with `skopeo copy` of the same images from a registry on this machine: `node
// test/bench/load.ts`, as root. Loads from a file and from a raw device. Arguments: the number of runs (3), and the megabytes of the release (1500).
import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { formatLoad, measureInto, median, type Measurement } from './measure.ts';
import type { BenchRegistry } from './registry.ts';
import { images, printMachine, serveRelease } from './release.ts';
import { makeTar } from './tar.ts';

const runs = Number(process.argv[2] ?? 3);

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
  const contenders: Record<string, readonly string[]> = {
    load: load(tar),
    'load, from a device': load(device),
    skopeo: skopeo(1),
    'skopeo, 3 at a time': skopeo(3),
  };
  console.log(
    `${images} images, ${(bytes / 1e6).toFixed(0)} MB, in a file, on ${device}, and in a registry on this machine`,
  );
  printMachine();
  const results = new Map<string, Measurement[]>(Object.keys(contenders).map((name) => [name, []]));
  for (let run = 0; run <= runs; run++) {
    for (const [name, command] of Object.entries(contenders)) {
      // `load` has the lowest priority. The other commands get it too, for a fair comparison.
      const measurement = await measureInto(out, ['nice', '-n', '19', ...command]);
      // The first run of each command warms the page cache.
      if (run > 0) results.get(name)?.push(measurement);
    }
  }
  const own = results.get('load') ?? [];
  for (const [name, all] of results) {
    const wall = median(all.map((each) => each.wall)).toFixed(2);
    const cpu = median(all.map((each) => each.cpu)).toFixed(2);
    const ratio = median(own.map((mine, run) => mine.wall / (all[run]?.wall ?? NaN))).toFixed(2);
    console.log(
      `${name.padEnd(19)} wall ${wall} s, cpu ${cpu} s${name === 'load' ? '' : `; load takes ${ratio} of that`}`,
    );
  }
  console.log(`\nmedians of ${runs} runs; load after: ${formatLoad()}`);
}
