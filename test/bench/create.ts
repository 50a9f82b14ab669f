// Compares `create` with the alternatives, on the same registry in the same run: `npm run bench`.
// Arguments: the number of runs (5), and the megabytes of the release (1500).
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { formatLoad, measure, measureInto, median, type Measurement } from './measure.ts';
import type { BenchRegistry } from './registry.ts';
import { images, printMachine, serveRelease } from './release.ts';

const runs = Number(process.argv[2] ?? 5);

await using served = await serveRelease('oc-adm_upgrade_bundle');
const { program, folder, release } = served;
await compare(release);

async function compare({
  host,
  repository,
  fingerprint,
  keyring,
  store,
  urls,
  pullspecs,
  bytes,
}: BenchRegistry): Promise<void> {
  const out = join(folder, 'out');
  const create = [
    ...[
      process.execPath,
      program,
      'create',
      '--version=4.20.3',
      `--release-repository=${host}/${repository}`,
      '--insecure',
    ],
    ...[
      `--signature-store=${store}`,
      `--signature-keyring=${keyring}`,
      `--trust-fingerprint=${fingerprint}`,
      `--output=${out}`,
    ],
  ];
  const list = urls.map((url, index) => `url = "${url}"\noutput = "${index}"`).join('\n');
  await writeFile(join(folder, 'curl'), list);
  // Fetches, writes and hashes every blob: with the program that is installed everywhere, and with
  // the fastest one.
  const floor = (hash: string): string =>
    `cd ${out} && curl -sS --no-progress-meter -Z --parallel-max 6 -K ${folder}/curl && ls | xargs -P2 -n16 ${hash} >/dev/null`;
  const openssl = floor('openssl dgst -sha256');
  const copies = pullspecs.map((pullspec, index) => {
    return `skopeo copy -q --all --src-tls-verify=false docker://${pullspec} dir:${out}/${index}`;
  });
  const contenders: Record<string, readonly string[]> = {
    create,
    'curl, sha256sum': ['sh', '-c', floor('sha256sum')],
    'curl, openssl': ['sh', '-c', openssl],
    // A bundle has its own digest, in addition to the digests of its blobs.
    'and of the whole': ['sh', '-c', `${openssl} && cat * | openssl dgst -sha256`],
    'skopeo+tar': ['sh', '-c', `cd ${out} && ${copies.join(' && ')} && tar -cf skopeo.tar *`],
  };

  console.log(`${images} images, ${urls.length} blobs, ${(bytes / 1e6).toFixed(0)} MB, registry on this machine`);
  printMachine();
  const results = new Map<string, Measurement[]>(Object.keys(contenders).map((name) => [name, []]));
  for (let run = 0; run <= runs; run++) {
    for (const [name, command] of Object.entries(contenders)) {
      const measurement = await measureInto(out, command);
      // The first run of each command warms the page cache.
      if (run > 0) results.get(name)?.push(measurement);
    }
  }
  const own = results.get('create') ?? [];
  for (const [name, measurements] of results) {
    const figure = (of: (measurement: Measurement) => number, digits: number): string =>
      median(measurements.map(of)).toFixed(digits);
    const ratio = (of: (measurement: Measurement) => number): string =>
      median(own.map((mine, run) => of(mine) / of(measurements[run] ?? mine))).toFixed(2);
    console.log(
      `${name.padEnd(16)} wall ${figure((m) => m.wall, 2)} s, cpu ${figure((m) => m.cpu, 2)} s, peak ${figure((m) => m.peak / 1e6, 0)} MB` +
        (name === 'create'
          ? ''
          : `; create is ${ratio((m) => m.wall)} of it in wall time, ${ratio((m) => m.cpu)} in CPU`),
    );
  }
  await measureInto(out, create);
  const single = {
    'create again': create,
    '--help': [process.execPath, program, '--help'],
    'node -e 0': [process.execPath, '-e', '0'],
  };
  for (const [name, command] of Object.entries(single)) {
    const measurements: Measurement[] = [];
    for (let run = 0; run < runs; run++) measurements.push(await measure(command));
    console.log(`${name.padEnd(12)} wall ${(1000 * median(measurements.map((m) => m.wall))).toFixed(0)} ms`);
  }
  console.log(`\nmedians of ${runs} runs; load after: ${formatLoad()}`);
}
