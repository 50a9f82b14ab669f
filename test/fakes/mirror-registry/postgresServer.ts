import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { globSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { run, runSuccessfully, type RunResult } from '../../support/peers.ts';
import { oldSchema } from './standInSchema.ts';

/** Debian has the programs of PostgreSQL in a folder for each version. */
const programs = globSync('/usr/lib/postgresql/*/bin').sort().at(-1) ?? '';

/** PostgreSQL does not run as root. */
const asUser = (words: readonly string[]): string[] =>
  process.getuid?.() === 0
    ? ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups', ...words]
    : [...words];

const account = ['-U', 'user', '-d', 'quay'];

let template: Promise<string> | undefined;

/** A new database costs seconds, so all tests copy one, which has the tables of Quay 3.8. */
async function makeTemplate(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'shared-postgres-'));
  if (process.getuid?.() === 0) await runSuccessfully('chown', ['postgres', folder]);
  process.once('exit', () => {
    rmSync(folder, { recursive: true, force: true });
  });
  const data = ['-D', join(folder, 'data')];
  const tool = async (name: string, args: readonly string[], input?: string): Promise<void> => {
    const [command = '', ...words] = asUser([join(programs, name), ...args]);
    await runSuccessfully(command, words, { cwd: '/', ...(input !== undefined && { input }) });
  };
  // Small files, because every test copies all of them several times.
  const small = ['--wal-segsize=1', '--no-locale', '-E', 'UTF8', '--no-sync'];
  await tool('initdb', [...data, '-U', 'user', '-A', 'trust', ...small]);
  // Without a server: a statement ends at an empty line.
  const single = ['--single', ...data, '-j', '-F'];
  await tool('postgres', [...single, 'postgres'], 'CREATE DATABASE quay;\n\n');
  const others = `UPDATE pg_database SET datistemplate = false;
DROP DATABASE template0;
DROP DATABASE template1;
DROP DATABASE postgres;
${oldSchema.trim()}
CHECKPOINT;
`;
  await tool('postgres', [...single, 'quay'], `${others.replaceAll(';\n', ';\n\n')}\n`);
  return join(folder, 'data');
}

/** The PostgreSQL of a registry. */
export interface Postgres {
  readonly folder: string;
  /** The digests of the whole folder, each time the server stops and before it starts. */
  readonly stops: string[];
  readonly starts: string[];
  /** Makes the server fail to start. */
  isBroken: boolean;
  readonly isRunning: boolean;
  /** Makes the database of a registry, and does not start the server. */
  create(): Promise<void>;
  /** Starts the server, if it does not run. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Runs a statement, and returns the first columns of its rows. */
  query(sql: string): Promise<string[]>;
  /** Runs a client program, such as pg_dump, with more arguments and its standard input. */
  runClient(name: string, args: readonly string[], input?: string): Promise<RunResult>;
  remove(): Promise<void>;
}

/** A PostgreSQL in the folder of a fixture, reached by a socket. */
export class PostgresServer implements Postgres {
  readonly folder: string;
  readonly stops: string[] = [];
  readonly starts: string[] = [];
  isBroken = false;
  #socket = '';
  #child: ChildProcess | undefined;

  constructor(folder: string) {
    this.folder = folder;
  }

  async create(): Promise<void> {
    template ??= makeTemplate();
    await mkdir(this.folder, { recursive: true });
    if (process.getuid?.() === 0) await runSuccessfully('chown', ['postgres', this.folder]);
    // The image of PostgreSQL keeps its data in this folder of its volume.
    await runSuccessfully('cp', ['-a', await template, this.#data]);
    this.#socket = await mkdtemp(join(tmpdir(), 'postgres-socket-'));
    await chmod(this.#socket, 0o777);
  }

  get #data(): string {
    return join(this.folder, 'userdata');
  }

  get isRunning(): boolean {
    return this.#child !== undefined;
  }

  async start(): Promise<void> {
    if (this.#child || this.isBroken) return;
    this.starts.push(this.#digest());
    // Nothing but its clients makes it write: tests compare its files on a busy machine too.
    const quiet = ['autovacuum=off', 'bgwriter_lru_maxpages=0', 'checkpoint_timeout=1d', 'wal_level=minimal'];
    const settings = [...quiet, 'max_wal_senders=0'].flatMap((setting) => ['-c', setting]);
    const words = [join(programs, 'postgres'), '-D', this.#data, '-k', this.#socket, '-h', '', '-F', ...settings];
    const [command = '', ...args] = asUser(words);
    this.#child = spawn(command, args, { stdio: 'ignore', cwd: '/' });
    const state = join(this.#data, 'postmaster.pid');
    const isReady = async (): Promise<boolean> => /^ready\s*$/m.test(await readFile(state, 'utf8').catch(() => ''));
    while (this.#child.exitCode === null && !(await isReady())) await sleep(20);
    if (this.#child.exitCode !== null) this.#child = undefined;
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (!child) return;
    this.#child = undefined;
    const ended = once(child, 'exit');
    child.kill('SIGINT');
    await ended;
    this.stops.push(this.#digest());
  }

  async query(sql: string): Promise<string[]> {
    const { code, stdout, stderr } = await this.#psql(sql);
    if (code !== 0) throw new Error(stderr);
    return stdout.split('\n').filter((line) => line !== '');
  }

  runClient(name: string, args: readonly string[], input = ''): Promise<RunResult> {
    return run(join(programs, name), ['-h', this.#socket, ...args], { input });
  }

  async remove(): Promise<void> {
    await this.stop();
    await rm(this.#socket, { recursive: true, force: true });
  }

  #psql(sql: string): Promise<RunResult> {
    return this.runClient('psql', [...account, '-v', 'ON_ERROR_STOP=1', '-qAtc', sql]);
  }

  #digest(): string {
    const hash = createHash('sha256');
    const names = readdirSync(this.folder, { recursive: true, encoding: 'utf8' }).sort();
    // For a thousand small files, the calls that wait take a fraction of the time.
    for (const path of [this.folder, ...names.map((name) => join(this.folder, name))]) {
      const stats = statSync(path);
      hash.update([path, stats.mode, stats.uid, stats.gid].join(' '));
      if (stats.isFile()) hash.update(readFileSync(path));
    }
    return hash.digest('hex');
  }
}
