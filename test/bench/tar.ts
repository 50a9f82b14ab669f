import { execFileSync } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { BenchRegistry } from './registry.ts';

/** Creates a bundle of the release of a registry in a new folder, and returns its path. */
export async function makeTar(
  program: string,
  { host, repository, store, keyring, fingerprint }: BenchRegistry,
  output: string,
): Promise<string> {
  const trust = [`--signature-store=${store}`, `--signature-keyring=${keyring}`, `--trust-fingerprint=${fingerprint}`];
  const release = ['--version=4.20.3', `--release-repository=${host}/${repository}`, '--insecure'];
  execFileSync(process.execPath, [program, 'create', '--quiet', ...release, ...trust, `--output=${output}`]);
  return join(output, (await readdir(output)).find((name) => name.endsWith('.tar')) ?? '');
}
