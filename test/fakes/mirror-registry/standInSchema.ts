import { DatabaseSync } from 'node:sqlite';
import type { Postgres } from './postgresServer.ts';

// A part of the schema of Quay, as PostgreSQL and SQLite have it, in two versions: that of Quay 3.8 and that of 3.12.

/** Rows with everything that may be lost on the way: quotes, lines, tabs, dates, numbers, NULL and no text. */
export const oldSchema = `
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL);
INSERT INTO alembic_version VALUES ('quay38');
CREATE TABLE migration (image TEXT);
CREATE TABLE role (id SERIAL PRIMARY KEY, name VARCHAR(255) NOT NULL);
INSERT INTO role (name) VALUES ('admin'), ('read');
CREATE TABLE "user" (id SERIAL PRIMARY KEY, username VARCHAR(255) NOT NULL UNIQUE, verified BOOLEAN NOT NULL,
  creation_date TIMESTAMP, maximum_queued_builds_count BIGINT, company VARCHAR(255));
CREATE TABLE repository (id SERIAL PRIMARY KEY, namespace_user_id INTEGER REFERENCES "user" (id), description TEXT,
  trust_enabled BOOLEAN NOT NULL DEFAULT false);
INSERT INTO "user" (username, verified, creation_date, maximum_queued_builds_count, company) VALUES
  ('init', true, '2023-01-02 03:04:05.678901', 9007199254740993, NULL), ('t', false, NULL, NULL, ''),
  ('O''Brien "x"', true, '2024-02-29 00:00:00', -1, 'true');
INSERT INTO repository (namespace_user_id, description, trust_enabled) VALUES
  (1, E'first line\\n\\n-- not a comment\\n\\\\.\\n\\ttab and back\\\\slash \\r', true), (3, 'grüße, 世界 🚀', false),
  (1, E'\\\\N', false), (2, NULL, false);
`;

const newInPostgres = `
ALTER TABLE "user" ADD COLUMN last_accessed TIMESTAMP;
CREATE TABLE quota (id SERIAL PRIMARY KEY, size BIGINT);
INSERT INTO quota (size) VALUES (1099511627776);
UPDATE alembic_version SET version_num = 'quay312';
`;

const newInSqlite = `
PRAGMA journal_mode = WAL;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL);
INSERT INTO alembic_version VALUES ('quay312');
CREATE TABLE migration (image TEXT);
CREATE TABLE role (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(255) NOT NULL);
INSERT INTO role (name) VALUES ('of the new schema');
CREATE TABLE repository (id INTEGER NOT NULL PRIMARY KEY, namespace_user_id INTEGER REFERENCES "user" (id),
  description TEXT, trust_enabled BOOLEAN NOT NULL);
CREATE TABLE "user" (id INTEGER NOT NULL PRIMARY KEY, username VARCHAR(255) NOT NULL UNIQUE, verified BOOLEAN NOT NULL,
  creation_date DATETIME, maximum_queued_builds_count BIGINT, company VARCHAR(255), last_accessed DATETIME);
CREATE TABLE quota (id INTEGER NOT NULL PRIMARY KEY, size BIGINT);
`;

const version = 'SELECT version_num FROM alembic_version';

/** Returns the version of the schema of an image of Quay. */
function versionOf(image: string): string {
  return image.includes(':v3.12.') ? 'quay312' : 'quay38';
}

/** Does the same as `alembic upgrade head` of an image of Quay. Refuses a database of a newer version. */
export async function migratePostgres(server: Postgres, image: string): Promise<void> {
  const [present] = await server.query(version);
  if (present === versionOf(image)) return;
  if (present !== 'quay38') throw new Error(`Can't locate revision identified by '${present ?? ''}'`);
  await server.query(newInPostgres);
}

/** Creates the schema of an image of Quay in a file, or checks it. Refuses a database of another version. */
export function migrateSqlite(path: string, image: string): void {
  using database = new DatabaseSync(path);
  if (!database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'alembic_version'").get()) {
    database.exec(newInSqlite);
  }
  const present = database.prepare(version).get()?.['version_num'];
  if (present !== versionOf(image)) throw new Error(`Can't locate revision identified by '${String(present)}'`);
}
