import { dirname, join } from 'node:path';
import { parseJson } from '#content/oci';
import { PluginError } from '#errors';
import { choice, count, flag, list, matches, object, optional, text, type Static } from '#schema';
import { unitNames } from '../detect/scopes.ts';
import type { FileChange } from '../installation/fileChange.ts';
import { certificatePathsOf, type Installation } from '../installation/installation.ts';
import { stateFolderOf } from '../installation/stateFolder.ts';

/**
 * The phase of a change. Forward: `writing` until the database is copied, `replacing` until another one has its place
 * (only if the change replaces it), then `restarting`. If the database moves to SQLite, `migrating` until PostgreSQL is
 * read comes before `replacing`. Back: `saving` until the newer database is copied, `restoring`
 * until everything is restored, and `starting` until the old registry has started. Before `writing`, nothing is changed
 * and there is no journal.
 */
export type UpgradePhase = UpgradeJournal['phase'];

/** A phase before the way back. */
export type ForwardPhase = (typeof forwardPhases)[number];

const forwardPhases = ['writing', 'migrating', 'replacing', 'restarting'] as const;

/** Locations of an installation’s files. */
export type InstallationPaths = Pick<Installation, 'quayRoot' | 'unitFolder'>;

const sha256 = text({ pattern: '^[0-9a-f]{64}$' });
const mode = count({ maximum: 0o777 });

const migration = object({
  /** The image of Quay that creates the schema. */
  image: text(),
  /** The volume by name, or the folder of the host by path, for the database of SQLite. */
  storage: text(),
  /** The change creates that volume or folder. */
  creates: flag(),
});

const retired = object({ units: list(text()), secrets: list(text()) });

const replaced = object({ name: text(), id: text() });

const file = object({
  path: text(),
  /** The old file; undefined if it did not exist. `sha256` is the SHA-256 of its bytes, in hex. */
  old: optional(object({ mode, uid: count(), gid: count(), sha256 })),
  mode: optional(mode),
  /** The change removes it. */
  isRemoved: optional(flag()),
});

const journal = object({
  /** An increasing number, and the time. */
  id: text({ pattern: String.raw`^\d{6}-\d{8}T\d{6}Z$` }),
  /** Its name as the subject of a sentence: `the upgrade`. */
  title: text(),
  phase: choice([...forwardPhases, 'saving', 'restoring', 'starting']),
  files: list(file),
  restart: list(text()),
  /** The folder of the database on this machine, if a new Quay may change the database. */
  database: optional(text({ pattern: '^/' })),
  /** The digest of the copy of the database, once it is complete. */
  copyDigest: optional(sha256),
  /** The database is that of PostgreSQL. */
  isPostgres: optional(flag()),
  /** The database is replaced by the one in the folder `replacement` of this program. */
  replacesDatabase: optional(flag()),
  /** The database moves from PostgreSQL to SQLite. */
  migration: optional(migration),
  /** The podman secrets that the change creates. */
  secrets: optional(list(text())),
  /** Units that the change disables, and their secrets. Both are removed with the backup. */
  retired: optional(retired),
  /** Expected images by the names of containers. */
  containers: list(object({ name: text(), image: text() })),
  names: list(object({ name: text(), to: text(), from: optional(text()) })),
  /** The replaced images, which a rollback needs, by name and ID. */
  replaced: list(replaced),
  /** Whether the registry was healthy before. */
  wasHealthy: flag(),
  /** How long the registry was not available during a change that ended, in seconds. */
  outage: optional(count()),
});

/** A change. Its folder has the old and the new files. */
export type UpgradeJournal = Static<typeof journal>;

/** The move of a database from PostgreSQL to SQLite. */
export type DatabaseMigration = Static<typeof migration>;

/** Units, without `.service`, and secrets that only they use. */
export type RetiredUnits = Static<typeof retired>;

/** An image that podman keeps for a rollback. */
export type ReplacedImage = Static<typeof replaced>;

/** A file before and after. Its bytes are in the folder of the change, as `<n>.old` and `<n>.new`. */
export type JournaledFile = Static<typeof file>;

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
  if (!matches(journal, value)) throw refuse('a field is missing, or has an unknown value');
  const { files, restart, retired: disabled } = value;
  const stray = files.find((file) => folderOfFile(installation, file.path) === undefined);
  if (stray) throw refuse(`it names ${stray.path}`);
  const unit = [...restart, ...(disabled?.units ?? [])].find((name) => !unitNames.includes(name));
  if (unit !== undefined) throw refuse(`it names ${unit}`);
  return value;
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
