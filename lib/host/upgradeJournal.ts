import { access, chmod, chown, mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { PluginError } from '../errors.ts';
import { describeWriteError } from '../store/disk.ts';
import { isMissing } from '../store/fileContent.ts';
import { replaceFile, type FileChange } from './fileChange.ts';
import type { HostFiles } from './hostFiles.ts';

/**
 * How far an upgrade is: `writing` until the database is safe, `restarting` from then on, `restoring` on the way back. Before `writing`
 * nothing of the host has been changed, and there is no journal.
 */
export type UpgradePhase = 'writing' | 'restarting' | 'restoring';

/** One upgrade: what it changes and what was there before, both in its folder. */
export interface UpgradeJournal {
  /** A number that counts up, and the time. */
  readonly id: string;
  /** What it is, as the subject of a sentence: `the upgrade`. */
  readonly title: string;
  readonly phase: UpgradePhase;
  readonly files: readonly JournaledFile[];
  readonly restart: readonly string[];
  /** The database’s folder, as this machine has it, where a new Quay may change the database. */
  readonly database: string | undefined;
  /** What has to run in the end, by the names of the containers. */
  readonly containers: readonly { readonly name: string; readonly image: string }[];
  /** Names that get another image, by its ID, and the ID of the one they had. */
  readonly names: readonly { readonly name: string; readonly to: string; readonly from: string | undefined }[];
  /** The registry was well before. */
  readonly wasHealthy: boolean;
}

/** A file before and after; the bytes are in the folder of the upgrade as `<n>.old` and `<n>.new`. */
export interface JournaledFile {
  readonly path: string;
  /** Undefined where there was none. */
  readonly old: { readonly mode: number; readonly uid: number; readonly gid: number } | undefined;
  readonly mode?: number;
}

/** Bytes that are kept free for the way back. */
const reserveSize = 64 * 1024;

/** The journal and the backups of an installation, in the folder of this program beside it. */
export class UpgradeRecords {
  readonly folder: string;
  readonly #files: HostFiles;

  constructor(files: HostFiles, stateFolder: string) {
    this.#files = files;
    this.folder = files.locate(stateFolder);
  }

  /** The folder of one upgrade. */
  folderOf({ id }: Pick<UpgradeJournal, 'id'>): string {
    return join(this.folder, 'backups', id);
  }

  /** The upgrade that has not ended; undefined where there is none. */
  current(): Promise<UpgradeJournal | undefined> {
    return readJournal(join(this.folder, 'journal.json'));
  }

  /** The last upgrade that ended well and was not taken back. */
  async last(): Promise<UpgradeJournal | undefined> {
    for (const id of (await this.#list()).toReversed()) {
      const journal = await readJournal(join(this.folder, 'backups', id, 'upgrade.json'));
      if (journal) return journal;
    }
    return undefined;
  }

  /** Keeps what is there and what is to come, and notes that the upgrade begins: from now on it can be gone on with, or taken back. */
  async begin(
    changes: readonly FileChange[],
    rest: Omit<UpgradeJournal, 'id' | 'phase' | 'files'>,
    now: Date,
  ): Promise<UpgradeJournal> {
    const kept = await this.#list();
    // Not by the clock alone: that of a host without a network may have been set back.
    const number = String(Number(kept.at(-1)?.split('-')[0] ?? 0) + 1).padStart(6, '0');
    const id = `${number}-${now.toISOString().replace(/[-:]|\.\d+/g, '')}`;
    const folder = this.folderOf({ id });
    try {
      await this.#removeBegun(kept);
      const files = await this.#stage(folder, changes);
      const journal: UpgradeJournal = { id, phase: 'writing', files, ...rest };
      await this.#note(journal);
      return journal;
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      throw describeWriteError(error, folder);
    }
  }

  /** Keeps the bytes of before and after in the folder of an upgrade. */
  async #stage(folder: string, changes: readonly FileChange[]): Promise<JournaledFile[]> {
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const files: JournaledFile[] = [];
    for (const [index, { path, before, after, mode }] of changes.entries()) {
      const old = before && (await stat(this.#files.locate(path)));
      if (before) await replaceFile(join(folder, `${String(index)}.old`), before, 0o600);
      await replaceFile(join(folder, `${String(index)}.new`), after, 0o600);
      const attributes = old && { mode: old.mode & 0o7777, uid: old.uid, gid: old.gid };
      files.push({ path, old: attributes, ...(mode !== undefined && { mode }) });
    }
    await replaceFile(join(folder, 'reserve'), Buffer.alloc(reserveSize, 1), 0o600);
    return files;
  }

  /** Gives back the room that was kept for the way back, which may lead over a full disk. */
  async makeRoom(journal: UpgradeJournal): Promise<void> {
    await rm(join(this.folderOf(journal), 'reserve'), { force: true });
  }

  /** The files that are neither as they were nor as they were to be. */
  async listForeign(journal: UpgradeJournal): Promise<string[]> {
    const foreign: string[] = [];
    for (const [index, { path, old }] of journal.files.entries()) {
      const known = [`${String(index)}.new`, ...(old ? [`${String(index)}.old`] : [])];
      const present = await this.#files.read(path);
      const contents = await Promise.all(known.map((name) => readFile(join(this.folderOf(journal), name))));
      const isKnown = present ? contents.some((content) => content.equals(present)) : !old;
      if (!isKnown) foreign.push(path);
    }
    return foreign;
  }

  /** Notes how far an upgrade is. */
  async advance(journal: UpgradeJournal, phase: UpgradePhase): Promise<UpgradeJournal> {
    if (journal.phase === phase) return journal;
    const next = { ...journal, phase };
    await this.#note(next);
    return next;
  }

  /** Writes all files as they are to be. */
  async apply(journal: UpgradeJournal): Promise<void> {
    for (const [index, { path, mode }] of journal.files.entries()) {
      const content = await readFile(join(this.folderOf(journal), `${String(index)}.new`));
      await replaceFile(this.#files.locate(path), content, mode);
    }
  }

  /** Writes all files as they were, with their modes and owners, and removes those that were not there. */
  async restore(journal: UpgradeJournal): Promise<void> {
    for (const [index, { path, old }] of journal.files.entries()) {
      const place = this.#files.locate(path);
      if (!old) {
        await rm(place, { force: true });
        await rm(`${place}.partial`, { force: true });
        continue;
      }
      const content = await readFile(join(this.folderOf(journal), `${String(index)}.old`));
      const present = await readFile(place).catch(() => undefined);
      // There may be no room to write what is there already.
      if (present?.equals(content)) await rm(`${place}.partial`, { force: true });
      else await replaceFile(place, content, old.mode);
      await chown(place, old.uid, old.gid);
      await chmod(place, old.mode);
    }
  }

  /** Ends an upgrade; one that went well is kept, to be taken back by hand, and only `keep` of them are. */
  async end(journal: UpgradeJournal, isGood: boolean, keep: number): Promise<void> {
    const folder = this.folderOf(journal);
    if (isGood) {
      await this.makeRoom(journal);
      await replaceFile(join(folder, 'upgrade.json'), JSON.stringify(journal), 0o600);
    } else {
      // A backup that is only half there must not be taken for the last one.
      await rm(join(folder, 'upgrade.json'), { force: true });
    }
    await rm(join(this.folder, 'journal.json'), { force: true });
    if (!isGood) await rm(folder, { recursive: true, force: true });
    const old = (await this.#list()).slice(0, -keep);
    for (const id of old) await rm(join(this.folder, 'backups', id), { recursive: true, force: true });
  }

  /** Takes away what runs left that were killed before they had changed anything. */
  async #removeBegun(ids: readonly string[]): Promise<void> {
    for (const folder of ids.map((id) => this.folderOf({ id }))) {
      const isWhole = await access(join(folder, 'upgrade.json')).then(
        () => true,
        () => false,
      );
      if (!isWhole) await rm(folder, { recursive: true, force: true });
    }
  }

  async #note(journal: UpgradeJournal): Promise<void> {
    await replaceFile(join(this.folder, 'journal.json'), JSON.stringify(journal), 0o600);
  }

  async #list(): Promise<string[]> {
    return (await readdir(join(this.folder, 'backups')).catch(() => [])).sort();
  }
}

async function readJournal(path: string): Promise<UpgradeJournal | undefined> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as UpgradeJournal;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw new PluginError('not-readable', `${path} cannot be read, which says how far an upgrade is`, { cause: error });
  }
}
