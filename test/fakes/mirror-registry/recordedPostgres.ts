import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { appendFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RunResult } from '../../support/peers.ts';
import { PostgresServer, type Postgres } from './postgresServer.ts';
import { migratePostgres } from './standInSchema.ts';

let recorded: Promise<string> | undefined;

/** Records what pg_dump of a real server prints for the schema of 2.0.11. */
async function record(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'postgres-recorded-'));
  const server = new PostgresServer(folder);
  try {
    await server.create();
    await server.start();
    await migratePostgres(server, 'quay:v3.12.18');
    return (await server.runClient('pg_dump', ['--data-only', '--username=user', '--dbname=quay'])).stdout;
  } finally {
    await server.remove();
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * A PostgreSQL that plays back, for tests that start it hundreds of times. Its folder has the version of the schema,
 * and changes each time it runs. It prints the dump of a real server.
 */
export class RecordedPostgres implements Postgres {
  readonly folder: string;
  readonly stops: string[] = [];
  readonly starts: string[] = [];
  isBroken = false;
  isRunning = false;
  #dump = '';

  constructor(folder: string) {
    this.folder = folder;
  }

  async create(): Promise<void> {
    recorded ??= record();
    this.#dump = await recorded;
    await mkdir(join(this.folder, 'userdata/base/1'), { recursive: true, mode: 0o700 });
    await writeFile(join(this.folder, 'userdata/PG_VERSION'), '10\n', { mode: 0o600 });
    await writeFile(join(this.folder, 'userdata/base/1/schema'), 'quay38', { mode: 0o600 });
  }

  async start(): Promise<void> {
    if (this.isRunning || this.isBroken) return;
    this.starts.push(this.#digest());
    await writeFile(join(this.folder, 'userdata/postmaster.pid'), '1');
    this.isRunning = true;
  }

  async stop(): Promise<void> {
    if (!this.isRunning) return;
    this.isRunning = false;
    await rm(join(this.folder, 'userdata/postmaster.pid'));
    await appendFile(join(this.folder, 'userdata/base/1/log'), 'ran\n');
    this.stops.push(this.#digest());
  }

  async query(sql: string): Promise<string[]> {
    const [, version] = /SET version_num = '(\w+)'/.exec(sql) ?? [];
    if (version !== undefined) await writeFile(join(this.folder, 'userdata/base/1/schema'), version);
    return sql.startsWith('SELECT version_num')
      ? [await readFile(join(this.folder, 'userdata/base/1/schema'), 'utf8')]
      : [];
  }

  runClient(name: string): Promise<RunResult> {
    if (!this.isRunning) return Promise.resolve({ code: 2, stdout: '', stderr: 'no response' });
    return Promise.resolve({ code: 0, stdout: name === 'pg_dump' ? this.#dump : '', stderr: '' });
  }

  async remove(): Promise<void> {
    await this.stop();
  }

  #digest(): string {
    const entries = readdirSync(this.folder, { recursive: true, withFileTypes: true });
    const paths = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
    const hash = createHash('sha256');
    for (const path of paths.sort()) hash.update(path.slice(this.folder.length)).update(readFileSync(path));
    return hash.digest('hex');
  }
}
