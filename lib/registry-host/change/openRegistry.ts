import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { parseJson } from '#content/oci';
import type { Context } from '#context';
import { PluginError } from '#errors';
import type { ConfinedPath, HostFiles } from '#node/machine';
import { list, matches, text } from '#schema';
import type { DetectedInstallation } from '../detect/detect.ts';
import type { DetectOptions } from '../detect/scopes.ts';
import {
  checkWritable,
  readWithAttributes,
  removeFile,
  removePartial,
  replaceFile,
  sha256Of,
  type FileChange,
  type FileCopy,
} from '../installation/fileChange.ts';
import type { HostAccess } from '../installation/installation.ts';
import { takeStateLock, StateFolder } from '../installation/stateFolder.ts';
import {
  folderOfFile,
  parseJournal,
  type ForwardJournal,
  type InstallationPaths,
  type JournaledFile,
  type PlannedChange,
  type UpgradeJournal,
  type UpgradePhase,
} from './upgradeJournal.ts';

/** The input of each change. */
export interface ExecutionRequest extends HostAccess {
  /** The registry before the change. `detect` finds it again. */
  readonly detected: DetectedInstallation;
  readonly detect: DetectOptions;
  readonly now: Date;
  /** Skip the restart and the health check. */
  readonly noRestart: boolean;
  /** Continue even if the registry is not healthy, or if its files were changed since. */
  readonly force: boolean;
  /** The time to wait for a healthy registry, in seconds. */
  readonly healthTimeout: number;
  readonly keepBackups: number;
}

/** A registry with its journal and its backups, and the context of the run. */
export interface OpenRegistry extends ExecutionRequest {
  readonly records: UpgradeRecords;
  readonly context: Context;
}

/** Opens a registry for reading its journal and its backups. */
export function openRegistry<T extends ExecutionRequest>(request: T, context: Context): T & OpenRegistry {
  return { ...request, context, records: new UpgradeRecords(request.files, request.detected.installation) };
}

/** Opens a registry that no other run changes until it is disposed. Throws `busy`, `disk-full`, `not-writable`. */
export async function lockRegistry<T extends ExecutionRequest>(
  request: T,
  context: Context,
): Promise<T & OpenRegistry & AsyncDisposable> {
  const lock = await takeStateLock(request.files, request.detected.installation);
  return { ...openRegistry(request, context), [Symbol.asyncDispose]: () => lock[Symbol.asyncDispose]() };
}

const journalName = 'journal.json';

/** The bytes that are kept free for a rollback. */
const reserveSize = 64 * 1024;

/** The journal and the backups of an installation, in the folder of this program beside it. */
export class UpgradeRecords {
  readonly state: StateFolder;
  readonly #files: HostFiles;
  readonly #installation: InstallationPaths;

  constructor(files: HostFiles, installation: InstallationPaths) {
    this.#files = files;
    this.#installation = installation;
    this.state = new StateFolder(files, installation);
  }

  /** Returns the folder of a change on this machine. */
  folderOf(journal: Pick<UpgradeJournal, 'id'>): Promise<string> {
    return this.state.locate(nameOf(journal));
  }

  /** Returns the path of a change’s folder for messages. */
  showFolder(journal: Pick<UpgradeJournal, 'id'>): string {
    return this.state.show(nameOf(journal));
  }

  /** Reads the unfinished change; undefined if there is none. Throws `invalid-file` and `not-readable`. */
  current(): Promise<UpgradeJournal | undefined> {
    return this.#readJournal(journalName);
  }

  /**
   * Reads the last change that succeeded and was not rolled back; undefined if there is none. Throws the errors of
   * `current`.
   */
  async last(): Promise<UpgradeJournal | undefined> {
    for (const id of (await this.#list()).toReversed()) {
      const journal = await this.#readJournal(join(nameOf({ id }), 'upgrade.json'));
      if (journal) return journal;
    }
    return undefined;
  }

  /**
   * Saves the old and the new files, and writes the journal. From then on, the change can be finished or rolled back.
   */
  async begin({ changes, ...rest }: PlannedChange, now: Date): Promise<ForwardJournal> {
    for (const { path } of changes) await checkWritable(this.#files, this.#confine(path));
    const kept = await this.#list();
    // The clock of a disconnected host may have been set back.
    const number = String(Number(kept.at(-1)?.split('-')[0] ?? 0) + 1).padStart(6, '0');
    const id = `${number}-${now.toISOString().replace(/[-:]|\.\d+/g, '')}`;
    try {
      await this.#removeBegun(kept);
      const files = await this.#stage(nameOf({ id }), changes);
      const none = { database: undefined, containers: [], names: [], replaced: [] };
      const journal = { ...none, ...rest, id, files, phase: 'writing' } as const;
      await noteWritten(this.state, changes);
      await this.#note(journal);
      return journal;
    } catch (error) {
      await this.state.remove(nameOf({ id }));
      throw error;
    }
  }

  /** Saves the old and the new bytes in the folder of a change. */
  async #stage(folder: string, changes: readonly FileChange[]): Promise<JournaledFile[]> {
    await this.state.remove(folder);
    await this.state.makeFolder(folder);
    const files: JournaledFile[] = [];
    for (const [index, { path, before, after, mode }] of changes.entries()) {
      const present = await readWithAttributes(this.#files, this.#confine(path));
      if (present ? !before?.equals(present.content) : before) {
        throw new PluginError('conflict', `${path} was changed by another program during this run`, {
          hint: 'Try again.',
        });
      }
      if (present) await this.state.write(join(folder, `${index}.old`), present.content);
      if (after) await this.state.write(join(folder, `${index}.new`), after);
      files.push({ path, old: present && factsOf(present), mode, ...(!after && { isRemoved: true }) });
    }
    await this.state.write(join(folder, 'reserve'), Buffer.alloc(reserveSize, 1));
    return files;
  }

  /** Frees the space that is reserved for a rollback. */
  async freeReserve(journal: UpgradeJournal): Promise<void> {
    await this.state.remove(join(nameOf(journal), 'reserve'));
  }

  /** Lists files whose content is neither the old content nor content that this program wrote. */
  async listModified(journal: UpgradeJournal): Promise<string[]> {
    const written = await readWritten(this.state);
    const modified: string[] = [];
    for (const { path, old, isRemoved } of journal.files) {
      const present = await this.#files.read(path);
      const digest = present && sha256Of(present);
      const isKnown = digest === undefined ? !old || isRemoved : digest === old?.sha256 || written.includes(digest);
      if (!isKnown) modified.push(path);
    }
    return modified;
  }

  /** Lists the files that a rollback would change. */
  async listChanged(journal: UpgradeJournal): Promise<JournaledFile[]> {
    const changed: JournaledFile[] = [];
    for (const file of journal.files) {
      if (!(await this.#isRestored(file))) changed.push(file);
    }
    return changed;
  }

  /**
   * Checks that every file can be restored: its backup is complete, and changed files are writable. Throws
   * `invalid-file` and `not-writable`.
   */
  async requireFiles(journal: UpgradeJournal): Promise<void> {
    for (const [index, { old }] of journal.files.entries()) {
      if (old) await this.#readOld(journal, index);
    }
    for (const { path } of await this.listChanged(journal)) await checkWritable(this.#files, this.#confine(path));
  }

  /** Reads all files as they were before a change; undefined if one did not exist. Throws `invalid-file`. */
  async readOldFiles(journal: UpgradeJournal): Promise<Map<string, Buffer | undefined>> {
    const contents = journal.files.map(async ({ path, old }, index) => {
      return [path, old && (await this.#readOld(journal, index))] as const;
    });
    return new Map(await Promise.all(contents));
  }

  /** Records the phase of a change. */
  async advance<P extends UpgradePhase>(journal: UpgradeJournal, phase: P): Promise<UpgradeJournal & { phase: P }> {
    const next = { ...journal, phase };
    if (journal.phase !== phase) await this.#note(next);
    return next;
  }

  /** Writes and removes files as the change says. */
  async apply(journal: UpgradeJournal): Promise<void> {
    for (const [index, { path, mode, isRemoved }] of journal.files.entries()) {
      const target = this.#confine(path);
      if (isRemoved) await removeFile(this.#files, target);
      else await replaceFile(this.#files, target, await this.#read(journal, `${index}.new`), { mode });
    }
  }

  /** Restores changed files with their modes and owners, and removes files that this program created. */
  async restore(journal: UpgradeJournal): Promise<void> {
    const written = await readWritten(this.state);
    for (const [index, file] of journal.files.entries()) {
      const target = this.#confine(file.path);
      if (!file.old) {
        const present = await readWithAttributes(this.#files, target);
        if (!present || written.includes(sha256Of(present.content))) await removeFile(this.#files, target);
      } else if (await this.#isRestored(file)) {
        await removePartial(this.#files, target);
      } else {
        await replaceFile(this.#files, target, await this.#readOld(journal, index), { attributes: file.old });
      }
    }
  }

  /** Ends a change. A successful change stays as a backup. */
  async end(journal: UpgradeJournal, isGood: boolean): Promise<void> {
    const folder = nameOf(journal);
    const ended = join(folder, 'upgrade.json');
    if (isGood) {
      await this.freeReserve(journal);
      await this.state.write(ended, JSON.stringify(journal));
    } else {
      // `last` must not find an incomplete backup.
      await this.state.remove(ended);
    }
    await this.state.remove(journalName);
    if (!isGood) await this.state.remove(folder);
    await this.state.removeScratch();
  }

  /** Abandons an unfinished change. Returns the path of its backup on this machine, which later runs keep. */
  async abandon(journal: UpgradeJournal): Promise<string> {
    const name = await this.state.rename(nameOf(journal), `abandoned-${journal.id}`);
    await this.state.write(join(name, 'journal.json'), JSON.stringify(journal));
    await this.state.remove(journalName);
    return this.state.show(name);
  }

  /** Removes a backup. */
  async drop(journal: UpgradeJournal): Promise<void> {
    await this.state.remove(nameOf(journal));
  }

  /** Lists the changes that succeeded and were not rolled back, oldest first. */
  async listEnded(): Promise<UpgradeJournal[]> {
    const ids = await this.#list();
    const journals = await Promise.all(ids.map((id) => this.#readJournal(join(nameOf({ id }), 'upgrade.json'))));
    return journals.filter((journal) => journal !== undefined);
  }

  /** Lists the same. Throws `conflict` if a change is unfinished. */
  async requireEnded(): Promise<UpgradeJournal[]> {
    const unfinished = await this.current();
    if (!unfinished) return this.listEnded();
    throw new PluginError('conflict', `${unfinished.title} is unfinished`, {
      hint: "Nothing was changed. Run the same command again to resume it, or 'rollback', which can also abandon it.",
    });
  }

  /** Lists the backups that exceed the last `keep`. Backups with a database count separately. */
  async listExpired(keep: number): Promise<UpgradeJournal[]> {
    const kinds = Map.groupBy(await this.listEnded(), ({ database }) => database !== undefined);
    return [...kinds.values()].flatMap((kind) => kind.slice(0, -keep));
  }

  async #isRestored({ path, old }: JournaledFile): Promise<boolean> {
    const present = await readWithAttributes(this.#files, this.#confine(path));
    return isDeepStrictEqual(present && factsOf(present), old);
  }

  async #read(journal: UpgradeJournal, name: string): Promise<Buffer> {
    const content = await this.state.read(join(nameOf(journal), name));
    if (content) return content;
    throw new PluginError('invalid-file', `the backup ${this.showFolder(journal)} is incomplete: ${name} is missing`);
  }

  async #readOld(journal: UpgradeJournal, index: number): Promise<Buffer> {
    const content = await this.#read(journal, `${index}.old`);
    const file = journal.files[index];
    if (file?.old?.sha256 === sha256Of(content)) return content;
    const message = `the backup of ${file?.path ?? ''} in ${this.showFolder(journal)} is corrupt`;
    throw new PluginError('invalid-file', message);
  }

  async #readJournal(name: string): Promise<UpgradeJournal | undefined> {
    const text = (await this.state.read(name))?.toString();
    return text === undefined ? undefined : parseJournal(text, this.state.show(name), this.#installation);
  }

  /** Removes folders of interrupted runs that changed nothing. */
  async #removeBegun(ids: readonly string[]): Promise<void> {
    for (const name of ids.map((id) => nameOf({ id }))) {
      if ((await this.state.read(join(name, 'upgrade.json'))) === undefined) await this.state.remove(name);
    }
  }

  async #note(journal: UpgradeJournal): Promise<void> {
    await this.state.write(journalName, JSON.stringify(journal));
  }

  async #list(): Promise<string[]> {
    return (await this.state.list('backups')).filter((name) => /^\d{6}-/.test(name));
  }

  #confine(path: string): ConfinedPath {
    const within = folderOfFile(this.#installation, path);
    if (within !== undefined) return { path, within };
    throw new PluginError('internal', `${path} is not a file of the installation`);
  }
}

function factsOf({ content, mode, uid, gid }: FileCopy): JournaledFile['old'] {
  return { mode, uid, gid, sha256: sha256Of(content) };
}

function nameOf({ id }: Pick<UpgradeJournal, 'id'>): string {
  return join('backups', id);
}

/** The digests of files that this program wrote. Their backups may be removed already. */
const writtenName = 'written.json';
const writtenLimit = 200;
const written = list(text());

/** Records the digests of the new content of files. Throws `disk-full` and `not-writable`. */
async function noteWritten(state: StateFolder, changes: readonly FileChange[]): Promise<void> {
  const digests = changes.flatMap(({ after }) => (after ? [sha256Of(after)] : []));
  const written = [...(await readWritten(state)), ...digests];
  await state.write(writtenName, JSON.stringify(written.slice(-writtenLimit)));
}

/** Reads the recorded digests. Throws `not-readable`, and `invalid-file` for a damaged record. */
export async function readWritten(state: StateFolder): Promise<string[]> {
  const json = (await state.read(writtenName))?.toString() ?? '[]';
  let cause: unknown;
  try {
    const value: unknown = parseJson(json);
    if (matches(written, value)) return [...value];
  } catch (error) {
    cause = error;
  }
  throw new PluginError('invalid-file', `${state.show(writtenName)} is not a list of digests`, {
    hint: 'Move it away. Files that this program wrote may then count as changed by another program.',
    cause,
  });
}
