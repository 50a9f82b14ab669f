import { hash } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { chmod, mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { findFreePort } from '../../support/freePort.ts';
import { run, type RunResult } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { makeFixture, type Fixture, type FixtureOptions } from './mirrorRegistry.ts';
import { installCertificates } from './mirrorRegistryCertificates.ts';
import { MirrorRegistryHost } from './mirrorRegistryHost.ts';
import { PostgresServer, type Postgres } from './postgresServer.ts';

/** The executable. */
export const mirrorRegistryExecutable = executableOf('oc-adm_mirror_registry');
const killAt = fileURLToPath(new URL('../../support/program/killAt.ts', import.meta.url));

/** A running mirror registry on its own host, on a free port of `localhost`, and the program to test with it. */
export interface RunningRegistry extends AsyncDisposable {
  readonly fixture: Fixture;
  readonly host: MirrorRegistryHost;
  /** Returns a path below the registry’s folder on this machine. */
  at(path: string): string;
  /** Runs `oc adm-mirror-registry` on it. Kills it at a step of `KilledRun`. */
  call(command: string, args?: readonly string[], killedAt?: number | string): Promise<RunResult>;
  /** Does the same in a separate process, which gets a real `kill -9` at a step of `killAt`. */
  kill(command: string, args: readonly string[], step: string): Promise<RunResult>;
  /**
   * Returns every file of the host except those of this program and of its backups, with mode, owner and digest; also
   * with times, if requested.
   */
  snapshot(withTimes?: boolean): Promise<Record<string, string>>;
  stop(): Promise<void>;
}

/**
 * Installs and starts a 2.0.7 whose certificate expires in 20 days, and its CA in 100. Keeps the old CA as
 * `/old-root.pem`. For port 8080 of the container there is no key, so that Quay serves HTTP.
 */
export async function startMirrorRegistry(
  options: Partial<FixtureOptions> = {},
  containerPort = 8443,
  Server: new (folder: string) => Postgres = PostgresServer,
): Promise<RunningRegistry> {
  const port = await findFreePort();
  const fixture = await makeFixture({
    age: '2.0.7',
    hostname: `localhost:${port}`,
    publish: `127.0.0.1:${port}:${containerPort}`,
    databaseStorage: '/srv/db',
    storage: '/srv/images',
    extra: ['--memory=4g'],
    ...options,
  });
  const at = (path: string): string => join(fixture.root, fixture.quayRoot, path);
  if (options.storage === undefined) await mkdir(join(fixture.root, 'srv/images'), { recursive: true });
  const isPostgres = options.age?.startsWith('1.') ?? false;
  if (!isPostgres) {
    await fixture.write('/srv/db/quay_sqlite.db', '', 0o664);
    using database = new DatabaseSync(join(fixture.root, 'srv/db/quay_sqlite.db'));
    database.exec('CREATE TABLE migration (image TEXT)');
  }
  await installCertificates(fixture, { host: 'localhost', days: 20, caDays: 100 });
  await fixture.write('/old-root.pem', await readFile(at('quay-rootCA/rootCA.pem'), 'utf8'));
  if (containerPort === 8080) await rm(at('quay-config/ssl.key'));
  const host = new MirrorRegistryHost(fixture, port, '/srv/db');
  if (isPostgres) {
    // The server runs as a user of its own.
    await chmod(fixture.root, 0o711);
    await mkdir(join(fixture.root, 'srv'), { recursive: true, mode: 0o755 });
    host.postgres = new Server(join(fixture.root, 'srv/db'));
    await host.postgres.create();
  }
  await host.start();
  const wordsOf = (command: string, args: readonly string[]): string[] => {
    const programs = join(fixture.root, 'programs');
    const where = [`--root=${fixture.root}`, `--user-home=${fixture.home}`];
    const tools = ['--health-timeout=2', `--podman=${programs}/podman`, `--systemctl=${programs}/systemctl`];
    const start = command === 'uninstall' ? 1 : 0;
    const taken = command === 'status' ? [] : command === 'plan' ? tools.slice(1, 2) : tools.slice(start);
    return [...command.split(' '), ...where, ...taken, ...args];
  };
  const stop = async (): Promise<void> => {
    await host.stop();
    await fixture.remove();
  };
  return {
    fixture,
    host,
    at,
    call: (command, args = [], killedAt) =>
      executeProgram(mirrorRegistryExecutable, wordsOf(command, args), { killedAt }),
    kill: (command, args, step) => {
      const env = { ...process.env, KILL_AT: step, NODE_OPTIONS: `--import=${killAt}` };
      return run(process.execPath, [mirrorRegistryExecutable, ...wordsOf(command, args)], { env });
    },
    snapshot: (withTimes = false) => Promise.resolve(snapshot(fixture.root, withTimes)),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

function snapshot(root: string, withTimes: boolean): Record<string, string> {
  const names = readdirSync(root, { recursive: true, encoding: 'utf8' }).sort();
  const found: Record<string, string> = {};
  for (const path of names.map((name) => `/${name}`)) {
    if (path.includes('.oc-mirror-registry')) continue;
    // For hundreds of small files, the calls that wait take a fraction of the time.
    const stats = lstatSync(root + path);
    if (!stats.isFile()) continue;
    const digest = hash('sha256', readFileSync(root + path));
    found[path] = [stats.mode, stats.uid, stats.gid, digest, withTimes ? stats.mtimeMs : ''].join(' ');
  }
  return found;
}
