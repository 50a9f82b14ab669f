// Compares mirroring to a directory and from registry to registry with `skopeo sync`, on the same registry in the same run:
// `node test/bench/mirror.ts`. Arguments: the number of runs (5), and the megabytes of the release (1500).
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseReference } from '../../lib/content/oci/reference.ts';
import { startDockerRegistry } from '../support/dockerRegistry.ts';
import { formatLoad, measure, measureInto, median, type Measurement } from './measure.ts';
import type { BenchRegistry } from './registry.ts';
import { images, printMachine, serveRelease } from './release.ts';

const runs = Number(process.argv[2] ?? 5);

await using served = await serveRelease('oc-adm_release_mirror_config');
const { program, folder, release } = served;
await compare(release);

async function compare(served: BenchRegistry): Promise<void> {
  const { host, pullspecs, attachments, fingerprint, keyring, store, bytes } = served;
  const out = join(folder, 'out');
  const list = join(folder, 'sync.yaml');
  // skopeo does not search for sigstore signatures, so its list has them.
  await writeFile(list, listForSkopeo(host, [...pullspecs, ...attachments]));
  const trust = [`--signature-store=${store}`, `--signature-keyring=${keyring}`, `--trust-fingerprint=${fingerprint}`];
  const mirror = [process.execPath, program, pullspecs[0] ?? '', '--insecure', ...trust];
  const sync = ['skopeo', 'sync', '--all', '--src=yaml'];
  const toDisk = [...mirror, `--to-dir=${out}`];
  const disk = {
    'to disk': () => measureInto(out, toDisk),
    'skopeo to disk': () => measureInto(out, [...sync, '--dest=dir', list, out]),
  };
  const registry = {
    'to registry': () => intoRegistry((to) => [...mirror, `--to=${to}/openshift/release`]),
    'skopeo to registry': () =>
      intoRegistry((to) => [...sync, '--dest=docker', '--dest-tls-verify=false', list, `${to}/openshift`]),
  };
  console.log(`${images} images, ${(bytes / 1e6).toFixed(0)} MB, registries on this machine`);
  printMachine();
  await race(disk);
  await race(registry);
  await measureInto(out, toDisk);
  const again: Measurement[] = [];
  for (let run = 0; run < runs; run++) again.push(await measure(toDisk));
  console.log(`to disk again: wall ${median(again.map(({ wall }) => wall)).toFixed(2)} s`);
  console.log(`\nmedians of ${runs} runs; load after: ${formatLoad()}`);
}

/** Measures two programs in turns. The first run of each warms the page cache. */
async function race(contenders: Readonly<Record<string, () => Promise<Measurement>>>): Promise<void> {
  const results = new Map<string, Measurement[]>(Object.keys(contenders).map((name) => [name, []]));
  for (let run = 0; run <= runs; run++) {
    for (const [name, contend] of Object.entries(contenders)) {
      const measurement = await contend();
      if (run > 0) results.get(name)?.push(measurement);
    }
  }
  const [own = [], other = []] = results.values();
  for (const [name, all] of results) {
    const figure = (of: (measurement: Measurement) => number, digits: number) => median(all.map(of)).toFixed(digits);
    console.log(
      `${name.padEnd(18)} wall ${figure(({ wall }) => wall, 2)} s, cpu ${figure(({ cpu }) => cpu, 2)} s, peak ${figure(({ peak }) => peak / 1e6, 0)} MB`,
    );
  }
  const ratio = median(own.map(({ wall }, run) => wall / (other[run]?.wall ?? NaN)));
  console.log(`${' '.repeat(18)} ratio of the wall times ${ratio.toFixed(2)}\n`);
}

/** Measures a command that copies into an empty registry, which no other run uses. */
async function intoRegistry(command: (host: string) => readonly string[]): Promise<Measurement> {
  await using registry = await startDockerRegistry();
  return await measure(command(registry.host));
}

function listForSkopeo(host: string, pullspecs: readonly string[]): string {
  const byRepository = Map.groupBy(pullspecs.map(parseReference), ({ repository }) => repository);
  const lines = [...byRepository].flatMap(([repository, references]) => [
    `    ${repository}:`,
    ...references.map(({ digest, tag }) => `      - "${digest ?? tag ?? ''}"`),
  ]);
  return [`${host}:`, '  tls-verify: false', '  images:', ...lines, ''].join('\n');
}
