import { open, readFile, rename } from 'node:fs/promises';
import { basename } from 'node:path';
import { formatManifest, type KubernetesObject } from '../config/manifest.ts';
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
  const name = basename(path);
  const line = text.split('\n').find((each) => each.slice(66) === name);
  const digest = `sha256:${line?.slice(0, 64) ?? ''}`;
  return isDigest(digest) ? digest : undefined;
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
