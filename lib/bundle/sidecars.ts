import { open, readFile, rename } from 'node:fs/promises';
import { basename } from 'node:path';
import { formatManifest, type KubernetesObject } from '../config/manifest.ts';
import { messageOf, PluginError } from '../errors.ts';
import { hexOf, isDigest, type Digest } from '../oci/digest.ts';
import { describeWriteError } from '../store/disk.ts';
import type { BundleMetadata } from './metadata.ts';

/** Writes what stands beside a bundle: `<bundle>.sha256` for sha256sum, and `<bundle>.yaml`, an UpgradeBundle ready to apply. */
export async function writeSidecars(path: string, digest: Digest, metadata: BundleMetadata): Promise<void> {
  await replaceFile(`${path}.sha256`, `${hexOf(digest)}  ${basename(path)}\n`);
  await replaceFile(`${path}.yaml`, formatManifest(upgradeBundleOf(digest, metadata)));
}

/** The digest that `<bundle>.sha256` gives for a bundle; undefined where there is no such file, or nothing about it. */
export async function readDigestFile(path: string): Promise<Digest | undefined> {
  const text = await readFile(`${path}.sha256`, 'utf8').catch(() => '');
  return parseDigests(text).find(({ name }) => name === basename(path))?.digest;
}

/**
 * The digest that a file in the format of sha256sum gives for a bundle: in the line with its name, or in the only one.
 * Throws `not-readable`, and `invalid-file` where it says nothing about the bundle.
 */
export async function findDigest(file: string, bundle: string): Promise<Digest> {
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new PluginError('not-readable', `${file} cannot be read: ${messageOf(cause)}`, { cause });
  });
  const lines = parseDigests(text);
  const line = lines.find(({ name }) => name === basename(bundle)) ?? (lines.length === 1 ? lines[0] : undefined);
  if (line) return line.digest;
  throw new PluginError('invalid-file', `${file} has no digest of ${basename(bundle)}`, {
    hint: 'It should have the format of sha256sum: 64 hex digits, two blanks, and the name of the bundle.',
  });
}

function parseDigests(text: string): { digest: Digest; name: string }[] {
  return [...text.matchAll(/^([0-9a-f]{64})(?: [ *](.*))?$/gm)].flatMap(([, hex = '', name = '']) => {
    const digest = `sha256:${hex}`;
    return isDigest(digest) ? [{ digest, name: basename(name) }] : [];
  });
}

function upgradeBundleOf(digest: Digest, { version, arch }: BundleMetadata): KubernetesObject {
  return {
    apiVersion: 'upgrade-bundle.openshift.io/v1alpha1',
    kind: 'UpgradeBundle',
    // Kubernetes names have no underscores.
    metadata: { name: `${version}-${arch}`.replaceAll('_', '-') },
    spec: { bundle: { digest } },
  };
}

async function replaceFile(path: string, content: string): Promise<void> {
  try {
    const file = await open(`${path}.partial`, 'w', 0o644);
    await file.writeFile(content);
    await file.sync();
    await file.close();
    await rename(`${path}.partial`, path);
  } catch (error) {
    throw describeWriteError(error, path);
  }
}
