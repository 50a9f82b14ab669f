import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding } from '#cluster/finding';
import type { KubernetesObject } from '#config/manifest';
import { ignoring } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, type Fields } from '#fields';
import { readDataUrl } from '../lint/container.ts';

const dropIns = '/etc/crio/crio.conf.d/';

/**
 * The CRI-O setting that keeps images after a power failure. With an empty file name, “crio wipe” (crio-wipe.service of
 * RHCOS) and internal_repair never see an unclean shutdown (ShutdownWasUnclean in CRI-O 1.25 and later). So they do not
 * empty the image store.
 */
export const retention = {
  path: `${dropIns}99-oc-upgrade-bundle`,
  content:
    '# Keeps the images of this node after a power failure: no registry can give them ' +
    'back.\n[crio]\nclean_shutdown_file = ""\n',
} as const;

const advice =
  'Install with the retention of images (OpenShift 4.17 and later). It sets clean_shutdown_file of CRI-O to "", ' +
  'which keeps the store.';

/** Returns the text of a file that a MachineConfig writes; undefined if it does not write the file. */
export function readConfigFile(config: KubernetesObject, path: string): string | undefined {
  const written = filesOf(config).find((file) => file['path'] === path);
  return written && readContents(written);
}

/**
 * Finds pools whose nodes remove all images after a power failure. Skips pools whose rendered MachineConfig has no
 * CRI-O configuration.
 */
export async function checkImageRetention(cluster: Cluster, pools: readonly KubernetesObject[]): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const pool of pools) {
    const rendered = await readNodeConfig(cluster, pool);
    if (!rendered || keepsImages(rendered)) continue;
    const message =
      'CRI-O removes all images of a node after a power failure; without a registry the node cannot start pods again';
    findings.push({ check: 'pools', severity: 'warning', subject: subjectOf(pool), message, advice });
  }
  return findings;
}

/** Reads the MachineConfig of the nodes of a pool; undefined if it does not exist or may not be read. */
export async function readNodeConfig(cluster: Cluster, { apiVersion, status }: KubernetesObject) {
  const name = textOf(fieldsAt(status, 'configuration')['name']);
  if (name === undefined) return undefined;
  // The pool itself was readable, so this is a missing right. The survey reports missing rights.
  return cluster.read({ apiVersion, kind: 'MachineConfig', metadata: { name } }).catch(ignoring('denied', 'not-found'));
}

/** The last drop-in that has the setting wins. */
function keepsImages(config: KubernetesObject): boolean {
  const texts = filesOf(config)
    .filter(({ path }) => String(path).startsWith(dropIns))
    .toSorted((a, b) => (String(a['path']) < String(b['path']) ? -1 : 1))
    .map(readContents);
  if (texts.length === 0) return true;
  const stated = texts.flatMap((text = '') => /^\s*clean_shutdown_file\s*=\s*["'](.*)["']/m.exec(text)?.[1] ?? []);
  return stated.at(-1) === '';
}

function filesOf(config: KubernetesObject): Fields[] {
  return listOf(fieldsAt(config, 'spec', 'config', 'storage')['files']);
}

/** Returns the text of a file, empty if it is no text or too large; undefined without a source. */
function readContents({ contents }: Fields): string | undefined {
  const source = textOf(fieldsOf(contents)['source']);
  if (source === undefined) return undefined;
  try {
    return readDataUrl(source) ?? '';
  } catch {
    return '';
  }
}
