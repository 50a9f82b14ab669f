import { PluginError } from '#errors';
import type { DetectedInstallation } from '../detect/detect.ts';
import { valuesOf } from '../detect/podmanCommand.ts';
import { settingsOf, type Edit, type UnitFile } from '../detect/units.ts';
import type { Installation } from '../installation/installation.ts';
import { compareTags, quayVersionOf } from '../installation/versions.ts';
import type { ImageChange } from '../releases/images.ts';

/** The value of `DB_URI` of a registry with SQLite. */
export const sqliteUri = 'sqlite:////sqlite/quay_sqlite.db';

/** The move of the database from PostgreSQL to SQLite. */
export interface MigrationPlan {
  /** The volume by name, or the folder by absolute path, for the database of SQLite. */
  readonly storage: string;
  /** The configuration of Quay, whose `DB_URI` changes. */
  readonly configuration: string;
  /** The unit that is stopped, and kept until the backup is removed. */
  readonly retired: 'quay-postgres';
}

/** The account of Quay in PostgreSQL. */
export interface PostgresAccount {
  readonly user: string;
  readonly database: string;
}

/** The first version of Quay in a mirror registry with SQLite. */
const firstWithSqlite = '3.12.0';

/** Returns the minor version of Quay in an image, such as `3.8`; the image if it is unknown. */
export function minorOf(image: string): string {
  return (quayVersionOf(image) ?? image).split('.').slice(0, 2).join('.');
}

/** Plans the move of the database; undefined if it stays where it is. */
export function planMigration(
  { installation, configuration }: DetectedInstallation,
  images: readonly ImageChange[],
  storage: string,
): MigrationPlan | undefined {
  const quay = images.find(({ component }) => component === 'quay');
  const version = quayVersionOf(quay?.to ?? '');
  if (installation.database !== 'postgres' || !quay || version === undefined) return undefined;
  if (quayVersionOf(quay.from) === undefined || minorOf(quay.from) === minorOf(quay.to)) return undefined;
  if (compareTags(version, firstWithSqlite) < 0) return undefined;
  return { storage, configuration: configuration.path, retired: 'quay-postgres' };
}

/** Lists what keeps the database of PostgreSQL from its new version of Quay, one sentence each. */
export function listDatabaseBlockers(
  detected: DetectedInstallation,
  images: readonly ImageChange[],
  migration: MigrationPlan | undefined,
): string[] {
  const { installation } = detected;
  const quay = images.find(({ component }) => component === 'quay');
  if (installation.database !== 'postgres' || !quay) return [];
  const { postgres } = installation.images;
  const what = `this registry keeps its database in PostgreSQL${postgres ? ` (${postgres.file}:${postgres.line})` : ''}`;
  if (!postgres || !installation.databaseStorage || !readAccount(detected)) {
    return [`${what}, and not in the one of its installer. Upgrade Quay and PostgreSQL by hand`];
  }
  const isKnown = quayVersionOf(quay.from) !== undefined && quayVersionOf(quay.to) !== undefined;
  if (migration || (isKnown && minorOf(quay.from) === minorOf(quay.to))) return [];
  return isKnown
    ? [
        `${what}. It can be upgraded within Quay ${minorOf(quay.from)}, or to a release of 2.x, which moves ` +
          'the database to SQLite',
      ]
    : [`${what}, and the versions of ${quay.from} and ${quay.to} are unknown`];
}

/** Returns the account of Quay in the PostgreSQL of the host; undefined for another database. */
export function readAccount({
  configuration,
}: Pick<DetectedInstallation, 'configuration'>): PostgresAccount | undefined {
  const text = configuration.get('DB_URI')?.value ?? '';
  if (!URL.canParse(text)) return undefined;
  const { hostname, username, pathname } = new URL(text);
  if (!/^(?:localhost|127\.0\.0\.1|\[::1\]|)$/.test(hostname) || username === '' || pathname.length < 2)
    return undefined;
  return { user: decodeURIComponent(username), database: decodeURIComponent(pathname.slice(1)) };
}

/** Returns what readAccount does, after a plan has required an account. */
export function requireAccount(detected: Pick<DetectedInstallation, 'configuration'>): PostgresAccount {
  const account = readAccount(detected);
  if (account) return account;
  throw new PluginError('internal', 'the configuration names no account of PostgreSQL');
}

/** Lists the changes of Quay’s unit: the volume of SQLite, and no dependence on PostgreSQL. */
export function listMigrationEdits(
  { commands, units }: DetectedInstallation,
  { storage }: MigrationPlan,
): { readonly file: UnitFile; readonly edit: Edit; readonly reason: string }[] {
  const unit = units.get('quay-app');
  const { quay } = commands;
  if (!unit || !quay) return [];
  const [first] = valuesOf(quay, 'volume');
  const option = quay.options.find(({ words }) => first && words.includes(first.word));
  const start = option?.words[0]?.start ?? quay.image?.start ?? 0;
  const mount = { start, end: start, text: `-v ${storage}:/sqlite:Z,U ` };
  const needs = ['Requires', 'Requisite', 'BindsTo', 'PartOf', 'Wants', 'After'].flatMap((key) =>
    settingsOf(unit, 'Unit', key).flatMap(({ file, words }) =>
      words.filter(({ text }) => text === 'quay-postgres.service').map((word) => ({ file, word })),
    ),
  );
  return [
    { file: quay.setting.file, edit: mount, reason: `the database of SQLite in ${storage}` },
    ...needs.map(({ file, word }, index) => ({
      file,
      edit: { start: startOfGap(file.text, word.start), end: word.end, text: '' },
      reason: index === 0 ? 'without quay-postgres.service' : '',
    })),
  ];
}

/** Returns the start of the spaces before an offset. */
function startOfGap(text: string, offset: number): number {
  return offset - (/[ \t]*$/.exec(text.slice(0, offset))?.[0].length ?? 0);
}

/** Tells whether an installation keeps its database in PostgreSQL during an upgrade. */
export function keepsPostgres({ database }: Installation, migration: MigrationPlan | undefined): boolean {
  return database === 'postgres' && !migration;
}
