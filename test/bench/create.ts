// Compares `create` and `verify` with the alternatives, on the same registry in the same run:
// `node test/bench/create.ts`. Arguments: the number of runs (5), and the megabytes of the release (1500).
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { measure, measureInto, race } from './measure.ts';
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
    process.execPath,
    program,
    'create',
    '--version=4.20.3',
    `--release-repository=${host}/${repository}`,
    '--insecure',
    `--signature-store=${store}`,
    `--signature-keyring=${keyring}`,
    `--trust-fingerprint=${fingerprint}`,
    `--output=${out}`,
  ];
  const list = urls.map((url, index) => `url = "${url}"\noutput = "${index}"`).join('\n');
  await writeFile(join(folder, 'curl'), list);
  // Fetches, writes and hashes every blob: with the program that is installed everywhere, and with
  // the fastest one.
  const floor = (hash: string): string =>
    `cd ${out} && curl -sS --no-progress-meter -Z --parallel-max 6 -K ${folder}/curl && ls | xargs -P2 -n16 ` +
    `${hash} >/dev/null`;
  const openssl = floor('openssl dgst -sha256');
  const copies = pullspecs.map((pullspec, index) => {
    return `skopeo copy -q --all --src-tls-verify=false docker://${pullspec} dir:${out}/${index}`;
  });
  const contenders: Record<string, readonly string[]> = {
    create,
    'curl, sha256sum': ['sh', '-c', floor('sha256sum')],
    'curl, openssl': ['sh', '-c', openssl],
    // A bundle has its own digest, in addition to the digests of its blobs.
    'curl, openssl, also of the whole': ['sh', '-c', `${openssl} && cat * | openssl dgst -sha256`],
    'skopeo+tar': ['sh', '-c', `cd ${out} && ${copies.join(' && ')} && tar -cf skopeo.tar *`],
  };

  printMachine(`${images} images, ${urls.length} blobs, ${(bytes / 1e6).toFixed(0)} MB, registry on this machine`);
  await race(
    'create',
    Object.fromEntries(Object.entries(contenders).map(([name, command]) => [name, () => measureInto(out, command)])),
    runs,
  );
  await measureInto(out, create);
  await race('create again', { create: () => measure(create) }, runs);
  const [tar = ''] = (await readdir(out)).filter((name) => name.endsWith('.tar'));
  const trust = [`--signature-keyring=${keyring}`, `--trust-fingerprint=${fingerprint}`];
  await race(
    'verify',
    {
      verify: () => measure([process.execPath, program, 'verify', join(out, tar), ...trust]),
      'openssl dgst': () => measure(['openssl', 'dgst', '-sha256', join(out, tar)]),
    },
    runs,
  );
}
