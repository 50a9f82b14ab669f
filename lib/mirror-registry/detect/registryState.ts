import { createHash, X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { certificatePathsOf } from '../certificatePaths.ts';
import type { FileChange } from '../fileChange.ts';
import type { HostFiles } from '../../machine/hostFiles.ts';
import type { Installation, ReleaseComponent } from '../installation.ts';
import type { DetectedInstallation } from './detect.ts';
import { StateFolder } from '../stateFolder.ts';

/** What this program knows of a registry from the last time that it changed it. A rollback brings the one before back. */
export interface RegistryState {
  /** The release of the mirror registry, where it is one. */
  readonly version?: string | undefined;
  /** What runs, as units name it, and the ID that podman gives to it. */
  readonly images: Readonly<Partial<Record<ReleaseComponent, { readonly ref: string; readonly id: string }>>>;
  /** The certificate of the server, and whether this program renews it. */
  readonly certs?: RecordedCertificate | undefined;
  /** The SHA-256 of every unit file and drop-in, by path. */
  readonly unitSha256: Readonly<Record<string, string>>;
  /** When it was upgraded, ISO 8601. */
  readonly lastUpgrade?: string | undefined;
}

/** Digests are SHA-256 in hex of a certificate’s DER; `own` is one that an administrator put in place. */
export interface RecordedCertificate {
  readonly leafSha256: string;
  readonly caSha256?: string | undefined;
  readonly notAfter: string;
  readonly origin: 'auto' | 'own';
}

/** What a change makes of a registry. */
export interface StateChange {
  readonly detected: DetectedInstallation;
  readonly version: string | undefined;
  /** Images that are to run, where they change, with their IDs. */
  readonly images: ReadonlyMap<ReleaseComponent, { readonly ref: string; readonly id: string }>;
  /** Whose the certificate of the server is afterwards; undefined where that is what it was. */
  readonly origin: RecordedCertificate['origin'] | undefined;
  /** The other files that change with it. */
  readonly changes: readonly FileChange[];
  readonly lastUpgrade?: string | undefined;
}

const stateName = 'state.json';

/** Reads what is known; undefined if nothing is, or if the file is damaged or not of this user: the host’s files tell everything too. */
export async function readState(files: HostFiles, installation: Installation): Promise<RegistryState | undefined> {
  try {
    const value: unknown = JSON.parse(
      (await new StateFolder(files, installation).read(stateName))?.toString() ?? 'null',
    );
    const { images, unitSha256 } = (value ?? {}) as Partial<Record<keyof RegistryState, unknown>>;
    return isRecord(images) && isRecord(unitSha256) ? (value as RegistryState) : undefined;
  } catch {
    return undefined;
  }
}

/** Makes the change of the file that says what is known, to be written, and taken back, with the others. */
export async function describeState(files: HostFiles, change: StateChange): Promise<FileChange> {
  const { detected, version, images, origin, changes, lastUpgrade } = change;
  const { installation } = detected;
  const old = await readState(files, installation);
  const folder = new StateFolder(files, installation);
  const state: RegistryState = {
    version,
    images: Object.fromEntries([
      // What was recorded counts as long as the units name it.
      ...Object.entries(old?.images ?? {}).filter(
        ([name, { ref }]) => ref === installation.images[name as ReleaseComponent]?.value,
      ),
      ...images,
    ]),
    certs: origin ? await recordCertificate(files, installation, origin, changes) : old?.certs,
    unitSha256: Object.fromEntries(
      [...detected.units.values()].flatMap(({ files: parts }) =>
        parts.map((file) => [file.path, sha256(changes.find((each) => each.path === file.path)?.after ?? file.text)]),
      ),
    ),
    lastUpgrade: lastUpgrade ?? old?.lastUpgrade,
  };
  const after = Buffer.from(`${JSON.stringify(state, null, 2)}\n`);
  return { path: join(folder.path, stateName), before: await folder.read(stateName), after, mode: 0o600 };
}

/** The unit files and drop-ins that somebody changed, added or took away since. */
export function listChangedUnits({ unitSha256 }: RegistryState, { units }: DetectedInstallation): string[] {
  const present = new Map(
    [...units.values()].flatMap(({ files }) => files.map(({ path, text }) => [path, sha256(text)])),
  );
  const paths = new Set([...present.keys(), ...Object.keys(unitSha256)]);
  return [...paths].filter((path) => present.get(path) !== unitSha256[path]).sort();
}

async function recordCertificate(
  files: HostFiles,
  installation: Installation,
  origin: RecordedCertificate['origin'],
  changes: readonly FileChange[],
): Promise<RecordedCertificate | undefined> {
  const paths = certificatePathsOf(installation);
  const read = async (path: string): Promise<X509Certificate | undefined> => {
    const bytes = changes.find((each) => each.path === path)?.after ?? (await files.read(path));
    return bytes && new X509Certificate(bytes);
  };
  const leaf = await read(paths.server);
  if (!leaf) return undefined;
  const root = origin === 'auto' ? await read(paths.authority) : undefined;
  const notAfter = leaf.validToDate.toISOString();
  return { leafSha256: sha256(leaf.raw), caSha256: root && sha256(root.raw), notAfter, origin };
}

function sha256(content: Buffer | string): string {
  return createHash('sha256').update(content).digest('hex');
}

function isRecord(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
