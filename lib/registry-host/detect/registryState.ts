import { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { parseJson } from '#content/oci';
import type { HostFiles } from '#node/machine';
import { choice, mapping, matches, object, optional, text, time, type Static } from '#schema';
import { sha256Of, type FileChange } from '../installation/fileChange.ts';
import { certificatePathsOf, type Installation, type ReleaseComponent } from '../installation/installation.ts';
import { StateFolder } from '../installation/stateFolder.ts';
import type { DetectedInstallation } from './detect.ts';

const certificate = object({
  leafSha256: text(),
  caSha256: optional(text()),
  notAfter: time(),
  origin: choice(['auto', 'own']),
});

const state = object({
  /** The release of the mirror registry, if known. */
  version: optional(text()),
  /** The images by their names in units, with their IDs in podman. */
  images: mapping(text<ReleaseComponent>(), object({ ref: text(), id: text() })),
  /** The certificate of the server, and whether this program renews it. */
  certs: optional(certificate),
  /** The SHA-256 of every unit file and drop-in, by path. */
  unitSha256: mapping(text(), text()),
  /** The time of the last upgrade, ISO 8601. */
  lastUpgrade: optional(time()),
});

/** The record of the last change by this program. A rollback restores the previous record. */
export type RegistryState = Static<typeof state>;

/** A recorded certificate. Digests are the SHA-256 of the DER in hex. `own` is a certificate of the administrator. */
export type RecordedCertificate = Static<typeof certificate>;

/** The state of a registry after a change. */
export interface StateChange {
  readonly detected: DetectedInstallation;
  readonly version: string | undefined;
  /** New images with their IDs. */
  readonly images: ReadonlyMap<ReleaseComponent, { readonly ref: string; readonly id: string }>;
  /** The origin of the server’s certificate; undefined if it does not change. */
  readonly origin: RecordedCertificate['origin'] | undefined;
  /** The other files of the change. */
  readonly changes: readonly FileChange[];
  readonly lastUpgrade?: string;
}

const stateName = 'state.json';

/**
 * Reads the record; undefined if it is missing, corrupt or of another user, because the files of the host have the same
 * facts.
 */
export async function readState(
  files: HostFiles,
  installation: Pick<Installation, 'quayRoot'>,
): Promise<RegistryState | undefined> {
  try {
    const text = (await new StateFolder(files, installation).read(stateName))?.toString() ?? 'null';
    const value: unknown = parseJson(text);
    return matches(state, value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the change of the record, which is written and rolled back with the other files. */
export async function describeState(files: HostFiles, change: StateChange): Promise<FileChange> {
  const { detected, version, images, origin, changes, lastUpgrade } = change;
  const { installation } = detected;
  const old = await readState(files, installation);
  const folder = new StateFolder(files, installation);
  const next: RegistryState = {
    version,
    images: Object.fromEntries([
      // A record is valid while the units name its image.
      ...Object.entries(old?.images ?? {}).filter(
        ([name, { ref }]) => ref === installation.images[name as ReleaseComponent]?.value,
      ),
      ...images,
    ]),
    certs: origin ? await recordCertificate(files, installation, origin, changes) : old?.certs,
    unitSha256: Object.fromEntries(
      [...detected.units.values()].flatMap(({ files: parts }) =>
        parts.map((file) => [file.path, sha256Of(changes.find((each) => each.path === file.path)?.after ?? file.text)]),
      ),
    ),
    lastUpgrade: lastUpgrade ?? old?.lastUpgrade,
  };
  const after = Buffer.from(`${JSON.stringify(next, null, 2)}\n`);
  return { path: join(folder.path, stateName), before: await folder.read(stateName), after, mode: 0o600 };
}

/**
 * Lists unit files and drop-ins that were changed, added or removed since the record. The unit of PostgreSQL does not
 * count if Quay uses SQLite, because it is removed with its backup.
 */
export function listChangedUnits(
  { unitSha256 }: RegistryState,
  { units, installation: { database } }: DetectedInstallation,
): string[] {
  const present = new Map(
    [...units.values()].flatMap(({ files }) => files.map(({ path, text }) => [path, sha256Of(text)])),
  );
  const paths = new Set([...present.keys(), ...Object.keys(unitSha256)]);
  const isUnused = (path: string): boolean => database === 'sqlite' && path.includes('/quay-postgres.service');
  return [...paths].filter((path) => present.get(path) !== unitSha256[path] && !isUnused(path)).sort();
}

async function recordCertificate(
  files: HostFiles,
  installation: Installation,
  origin: RecordedCertificate['origin'],
  changes: readonly FileChange[],
): Promise<RecordedCertificate | undefined> {
  const paths = certificatePathsOf(installation);
  const read = async (path: string): Promise<X509Certificate | undefined> => {
    const change = changes.find((each) => each.path === path);
    const bytes = change ? change.after : await files.read(path);
    return bytes && new X509Certificate(bytes);
  };
  const leaf = await read(paths.server);
  if (!leaf) return undefined;
  const root = origin === 'auto' ? await read(paths.authority) : undefined;
  const notAfter = leaf.validToDate.toISOString();
  return { leafSha256: sha256Of(leaf.raw), caSha256: root && sha256Of(root.raw), notAfter, origin };
}
