import { createReadStream } from 'node:fs';
import { awaitDone } from '#context';
import { ignoring, isPluginError, PluginError } from '#errors';
import type { HostCommands } from '#node/machine';
import { requireAccount, type PostgresAccount } from './migrationPlan.ts';
import type { ExecutionRequest } from './openRegistry.ts';
import { readDump } from './sqliteImport.ts';

/** The name of a dump of PostgreSQL, in folders of this program. */
export const dumpName = 'quay.sql';

const container = 'quay-postgres';

/** Removes everything that Quay has in its database. Extensions stay, because only a superuser can create them. */
const clear = `SET client_min_messages = warning;
DO $$
DECLARE found record;
BEGIN
  FOR found IN
    SELECT relname, CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'
      ELSE 'TABLE' END AS kind
    FROM pg_catalog.pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S', 'v', 'm')
      AND relowner = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)
    ORDER BY relkind = 'r' DESC
  LOOP
    EXECUTE format('DROP %s IF EXISTS public.%I CASCADE', found.kind, found.relname);
  END LOOP;
END $$;
`;

/** Returns why PostgreSQL does not answer in its container; undefined if it does. Throws `interrupted`. */
export async function findPostgresProblem(
  commands: HostCommands,
  { user, database }: PostgresAccount,
  after = '',
): Promise<PluginError | undefined> {
  try {
    await commands.podman(['exec', container, 'pg_isready', `--username=${user}`, `--dbname=${database}`]);
    return undefined;
  } catch (cause) {
    if (!isPluginError(cause, 'command-failed')) throw cause;
    return new PluginError('unreachable', `PostgreSQL does not answer${after}: ${cause.message}`, {
      hint: 'See journalctl -u quay-postgres.service.',
      cause,
    });
  }
}

/** Waits until PostgreSQL answers in its container. Throws `unreachable` after `seconds`. */
export async function waitForPostgres(
  commands: HostCommands,
  account: PostgresAccount,
  seconds: number,
): Promise<void> {
  const check = (): Promise<PluginError | undefined> => findPostgresProblem(commands, account, ` after ${seconds} s`);
  await awaitDone(check, { timeout: seconds * 1000, interval: 500 }, commands);
}

/** Options of pg_dump: the rows of all tables, or also the tables themselves with everything that belongs to them. */
const parts = { rows: ['--data-only'], tables: ['--table=public.*'] } as const;

/** Yields the output of pg_dump: a consistent state, also while Quay runs. Throws `command-failed`. */
export function dumpPostgres(
  commands: HostCommands,
  { user, database }: PostgresAccount,
  part: keyof typeof parts,
): AsyncIterable<Buffer> {
  const given = ['--no-owner', '--no-privileges', '--encoding=UTF8', `--username=${user}`, `--dbname=${database}`];
  return commands.readPodman(['exec', container, 'pg_dump', ...parts[part], ...given]);
}

/** Checks that a dump has its end. Reads the whole file. Throws `incomplete`. */
export async function checkDump(path: string): Promise<void> {
  await readDump(createReadStream(path), () => () => undefined);
}

/**
 * Checks that the PostgreSQL of this host can read a dump, whose first bytes are `head`: its major version is not
 * older. Returns false if that is unknown, because the server does not answer. Throws `unsupported`.
 */
export async function checkDumpVersion(
  commands: HostCommands,
  { user, database }: PostgresAccount,
  head: string,
): Promise<boolean> {
  const [, dumped] = /^-- Dumped from database version (\S+)/m.exec(head) ?? [];
  if (dumped === undefined) return false;
  const query = ['--no-psqlrc', '--no-align', '--tuples-only', '--command=SHOW server_version'];
  const words = ['exec', container, 'psql', ...query, `--username=${user}`, `--dbname=${database}`];
  const present = await commands.podman(words).catch(ignoring('command-failed'));
  if (present === undefined) return false;
  if (majorOf(dumped) <= majorOf(present)) return true;
  const message = `the database in the backup is of PostgreSQL ${dumped}, which is newer than ${present.trim()} of this host`;
  const hint =
    'Nothing was changed. Install the mirror-registry release of the backup on this host, and restore again.';
  throw new PluginError('unsupported', message, { hint });
}

/** Returns the major version of PostgreSQL as a number: 10 of `10.23`, 9.6 of `9.6.24`. */
function majorOf(version: string): number {
  const number = parseFloat(version);
  return number >= 10 ? Math.floor(number) : number;
}

/**
 * Starts PostgreSQL, and replaces Quay’s tables by those of a dump, all or none of them. Quay must be stopped. Throws
 * `command-failed`, and `unreachable` if PostgreSQL does not start.
 */
export async function loadPostgres(
  { commands, detected, healthTimeout }: ExecutionRequest,
  path: string,
): Promise<void> {
  const account = requireAccount(detected);
  await commands.systemctl(['restart', `${container}.service`]);
  await waitForPostgres(commands, account, healthTimeout);
  const given = ['--no-psqlrc', '--quiet', '--single-transaction', '--set=ON_ERROR_STOP=1', '--file=-'];
  const words = ['psql', ...given, `--username=${account.user}`, `--dbname=${account.database}`];
  await commands.podman(['exec', '--interactive', container, ...words], script(path));
}

async function* script(path: string): AsyncGenerator<Buffer> {
  yield Buffer.from(clear);
  yield* createReadStream(path) as AsyncIterable<Buffer>;
}
