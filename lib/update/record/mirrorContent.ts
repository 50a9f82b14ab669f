import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * What the mirrors of a cluster keep. `all`: whole bundles. `metadata`: what the machine config controller reads of a
 * release and its operating systems, which the agents have as facts of a bundle.
 */
export const mirrorContents = ['all', 'metadata'] as const;

/** See `mirrorContents`. */
export type MirrorContent = (typeof mirrorContents)[number];

/** The file beside the certificate of a mirror with its MirrorContent. */
export const contentFile = 'content';

/** Returns the MirrorContent that a text names; `all` if it names none. */
export function parseMirrorContent(text: string | undefined): MirrorContent {
  return mirrorContents.find((each) => each === text) ?? 'all';
}

/** Reads what the mirror with its certificate in a folder keeps; undefined if there is no mirror. */
export async function readMirrorContent(certificates: string): Promise<MirrorContent | undefined> {
  if (!(await stat(join(certificates, 'tls.crt')).catch(() => undefined))) return undefined;
  return parseMirrorContent(await readFile(join(certificates, contentFile), 'utf8').catch(() => undefined));
}

/**
 * Returns whether a client may read manifests and configurations only: the machine config controller, or ours. The
 * former is a plain client of the library containers/image (docker_client.go, defaultUserAgent). CRI-O and skopeo name
 * themselves; Podman is a plain client too, so mirrors of metadata are the last ones.
 */
export function readsMetadata(client: string): boolean {
  return client.startsWith('containers/') || client.startsWith('oc-disconnected');
}
