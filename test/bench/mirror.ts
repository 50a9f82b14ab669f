// Compares mirroring to a directory and from registry to registry with `skopeo sync`, on the same registry in the same
// run: `node test/bench/mirror.ts`. Arguments: the number of runs (5), the megabytes of the release (1500), and its
// images (60).
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseReference } from '../../lib/content/oci/reference.ts';
import { startDockerRegistry } from '../support/dockerRegistry.ts';
import { measure, measureInto, race, type Measurement } from './measure.ts';
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
    'skopeo sync': () => measureInto(out, [...sync, '--dest=dir', list, out]),
  };
  const registry = {
    'to registry': () => intoRegistry((to) => [...mirror, `--to=${to}/openshift/release`]),
    'skopeo sync': () =>
      intoRegistry((to) => [...sync, '--dest=docker', '--dest-tls-verify=false', list, `${to}/openshift`]),
  };
  printMachine(`${images} images, ${(bytes / 1e6).toFixed(0)} MB, registries on this machine`);
  await race('mirror to a directory', disk, runs);
  await race('mirror to a registry', registry, runs);
  await measureInto(out, toDisk);
  await race('mirror to a directory again', { 'to disk': () => measure(toDisk) }, runs);
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
