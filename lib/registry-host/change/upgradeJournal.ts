import { dirname, join } from 'node:path';
import { parseJson } from '#content/oci';
import { PluginError } from '#errors';
import { fieldsWith, isCount, isFlag, isText, listWith, optional, type Test } from '#fields';
import { unitNames } from '../detect/scopes.ts';
import type { FileAttributes, FileChange } from '../installation/fileChange.ts';
import { certificatePathsOf, type Installation } from '../installation/installation.ts';
import { stateFolderOf } from '../installation/stateFolder.ts';
import type { ImageRename } from '../releases/images.ts';

/**
 * The phase of a change. Forward: `writing` until the database is copied, `replacing` until another one has its place
 * (only if the change replaces it), then `restarting`. If the database moves to SQLite, `migrating` until PostgreSQL is
 * read comes before `replacing`. Back: `saving` until the newer database is copied, `restoring`
 * until everything is restored, and `starting` until the old registry has started. Before `writing`, nothing is changed
 * and there is no journal.
 */
export type UpgradePhase = ForwardPhase | 'saving' | 'restoring' | 'starting';

/** A phase before the way back. */
export type ForwardPhase = (typeof forwardPhases)[number];

const forwardPhases = ['writing', 'migrating', 'replacing', 'restarting'] as const;
const phases: readonly string[] = [...forwardPhases, 'saving', 'restoring', 'starting'];

/** Locations of an installation’s files. */
export type InstallationPaths = Pick<Installation, 'quayRoot' | 'unitFolder'>;

/** A change. Its folder has the old and the new files. */
export interface UpgradeJournal {
  /** An increasing number, and the time. */
  readonly id: string;
  /** Its name as the subject of a sentence: `the upgrade`. */
  readonly title: string;
  readonly phase: UpgradePhase;
  readonly files: readonly JournaledFile[];
  readonly restart: readonly string[];
  /** The folder of the database on this machine, if a new Quay may change the database. */
  readonly database: string | undefined;
  /** The digest of the copy of the database, once it is complete. */
  readonly copyDigest?: string;
  /** The database is that of PostgreSQL. */
  readonly isPostgres?: boolean;
  /** The database is replaced by the one in the folder `replacement` of this program. */
  readonly replacesDatabase?: boolean;
  /** The database moves from PostgreSQL to SQLite. */
  readonly migration?: DatabaseMigration;
  /** The podman secrets that the change creates. */
  readonly secrets?: readonly string[];
  /** Units that the change disables, and their secrets. Both are removed with the backup. */
  readonly retired?: RetiredUnits;
  /** Expected images by the names of containers. */
  readonly containers: readonly { readonly name: string; readonly image: string }[];
  readonly names: readonly ImageRename[];
  /** The replaced images, which a rollback needs, by name and ID. */
  readonly replaced: readonly ReplacedImage[];
  /** Whether the registry was healthy before. */
  readonly wasHealthy: boolean;
  /** How long the registry was not available during a change that ended, in seconds. */
  readonly outage?: number;
}

/** The move of a database from PostgreSQL to SQLite. */
export interface DatabaseMigration {
  /** The image of Quay that creates the schema. */
  readonly image: string;
  /** The volume by name, or the folder of the host by path, for the database of SQLite. */
  readonly storage: string;
  /** The change creates that volume or folder. */
  readonly creates: boolean;
}

/** Units, without `.service`, and secrets that only they use. */
export interface RetiredUnits {
  readonly units: readonly string[];
  readonly secrets: readonly string[];
}

/** An image that podman keeps for a rollback. */
export interface ReplacedImage {
  readonly name: string;
  readonly id: string;
}

/** A file before and after. Its bytes are in the folder of the change, as `<n>.old` and `<n>.new`. */
export interface JournaledFile {
  readonly path: string;
  /** The old file; undefined if it did not exist. `sha256` is the SHA-256 of its bytes, in hex. */
  readonly old: (FileAttributes & { readonly sha256: string }) | undefined;
  readonly mode?: number;
  /** The change removes it. */
  readonly isRemoved?: boolean;
}

const isSha256: Test = (value) => isText(value) && /^[0-9a-f]{64}$/.test(String(value));
const isMode: Test = (value) => isCount(value) && Number(value) <= 0o777;

/** The test of a journal that is read back. */
const isJournal = fieldsWith({
  id: (value) => isText(value) && /^\d{6}-\d{8}T\d{6}Z$/.test(String(value)),
  title: isText,
  phase: (value) => isText(value) && phases.includes(String(value)),
  files: listWith(
    fieldsWith({
      path: isText,
      old: optional(fieldsWith({ mode: isMode, uid: isCount, gid: isCount, sha256: isSha256 })),
      mode: optional(isMode),
      isRemoved: optional(isFlag),
    }),
  ),
  restart: listWith(isText),
  database: optional((value) => isText(value) && String(value).startsWith('/')),
  copyDigest: optional(isSha256),
  isPostgres: optional(isFlag),
  replacesDatabase: optional(isFlag),
  migration: optional(fieldsWith({ image: isText, storage: isText, creates: isFlag })),
  secrets: optional(listWith(isText)),
  retired: optional(fieldsWith({ units: listWith(isText), secrets: listWith(isText) })),
  containers: listWith(fieldsWith({ name: isText, image: isText })),
  names: listWith(fieldsWith({ name: isText, to: isText, from: optional(isText) })),
  replaced: listWith(fieldsWith({ name: isText, id: isText })),
  wasHealthy: isFlag,
  outage: optional(isCount),
});

/** A change before it begins: the files that it writes, and what its journal says from the beginning. */
export type PlannedChange = { readonly changes: readonly FileChange[] } & Pick<
  UpgradeJournal,
  'title' | 'restart' | 'wasHealthy'
> &
  Partial<Omit<UpgradeJournal, 'id' | 'phase' | 'files'>>;

/** A change whose rollback has not begun. */
export type ForwardJournal = UpgradeJournal & { readonly phase: ForwardPhase };

/** Tells whether a change goes forward. */
export function isForward(journal: UpgradeJournal): journal is ForwardJournal {
  return (forwardPhases as readonly string[]).includes(journal.phase);
}

/** Returns the folder that a file of the installation must not leave; undefined for any other file. */
export function folderOfFile(installation: InstallationPaths, path: string): string | undefined {
  const { unitFolder, quayRoot } = installation;
  const state = stateFolderOf(installation);
  if (path === join(state, 'state.json')) return state;
  if (Object.values(certificatePathsOf(installation)).includes(path)) return quayRoot.value;
  const configuration = join(quayRoot.value, 'quay-config');
  const isCertificate = dirname(path) === join(configuration, 'extra_ca_certs') && join(path) === path;
  if (isCertificate || path === join(configuration, 'config.yaml')) return quayRoot.value;
  const isUnit = unitNames.some((name) => {
    const unit = join(unitFolder, `${name}.service`);
    return path === unit || (dirname(path) === `${unit}.d` && path.endsWith('.conf'));
  });
  return isUnit ? unitFolder : undefined;
}

/**
 * Parses a journal. It determines which files are written, so it throws `invalid-file` if the journal names other files
 * or units than those of the installation.
 */
export function parseJournal(text: string, path: string, installation: InstallationPaths): UpgradeJournal {
  const refuse = (why: string, cause?: unknown): PluginError =>
    new PluginError('invalid-file', `${path} is not a journal of this registry: ${why}`, {
      hint: 'Nothing was changed. Restore the file, or move it away if no upgrade or renewal is unfinished.',
      cause,
    });
  let value: unknown;
  try {
    value = parseJson(text);
  } catch (cause) {
    throw refuse('it is not JSON', cause);
  }
  if (!isJournal(value)) throw refuse('a field is missing, or has an unknown value');
  const journal = value as UpgradeJournal;
  const { files, restart, retired } = journal;
  const stray = files.find((file) => folderOfFile(installation, file.path) === undefined);
  if (stray) throw refuse(`it names ${stray.path}`);
  const unit = [...restart, ...(retired?.units ?? [])].find((name) => !unitNames.includes(name));
  if (unit !== undefined) throw refuse(`it names ${unit}`);
  return journal;
}

/** Returns the start time of a change, as ISO 8601 to the second. */
export function timeOf({ id }: Pick<UpgradeJournal, 'id'>): string {
  return id.replace(/^\d+-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, '$1-$2-$3T$4:$5:$6Z');
}

/** Returns the names of containers that never run, and keep the replaced images from `podman image prune --all`. */
export function rollbackContainers({ id, replaced }: Pick<UpgradeJournal, 'id' | 'replaced'>): string[] {
  return replaced.map((_, index) => `oc-mirror-registry-rollback-${id.toLowerCase()}-${index}`);
}

/** Returns the names under which podman keeps the replaced images. */
export function rollbackTags({ id, replaced }: Pick<UpgradeJournal, 'id' | 'replaced'>): string[] {
  return replaced.map((_, index) => `localhost/oc-mirror-registry/rollback:${id.toLowerCase()}-${index}`);
}
