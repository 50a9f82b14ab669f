import { encodeHeader } from '#content/archive';
import { unitNames } from '../detect/scopes.ts';

/** The registry that a backup is of. */
export interface BackupFacts {
  readonly format: 1;
  /** ISO 8601. */
  readonly created: string;
  /** The release of the mirror registry, if known. */
  readonly version: string | undefined;
  /** The image of Quay, as its unit names it. */
  readonly quay: string;
  /** `SERVER_HOSTNAME`. */
  readonly hostname: string;
  /** The content of images is included. */
  readonly hasImages: boolean;
}

/** A file in a backup; its digest is the SHA-256 in hex. */
export interface BackupEntry {
  readonly path: string;
  readonly size: number;
  readonly sha256: string;
}

/** The last file of a backup: what it is of, and all other files in their order. */
export interface BackupManifest extends BackupFacts {
  readonly files: readonly BackupEntry[];
}

/** A file for a backup; `size` in bytes. */
export interface PackedFile {
  readonly path: string;
  readonly size: number;
  readonly content: AsyncIterable<Buffer> | readonly Buffer[];
}

/** The path of the manifest in a backup. */
export const manifestName = 'manifest.json';

/** The paths of the database in a backup: the file of SQLite, or the dump of PostgreSQL. Each backup has one. */
export const databaseEntries = { sqlite: 'database/quay_sqlite.db', postgres: 'database/quay.sql' } as const;

/** Folder of the content of images in a backup. */
export const imagesFolder = 'images/';

const unit = `(?:${unitNames.join('|')})\\.service`;
const smallNames = new RegExp(
  `^(?:quay-config/(?:config\\.yaml|ssl\\.(?:cert|key)|extra_ca_certs/\\w[\\w.-]*)` +
    `|quay-rootCA/(?:next/)?rootCA\\.(?:pem|key)|units/${unit}(?:\\.d/[\\w@-][\\w@.-]*\\.conf)?)$`,
);
const imageNames = /^images(?:\/\w[\w.-]*)+$/;

/** Tells whether a backup may have a file of that path. */
export function isBackupPath(path: string): boolean {
  const isPlain = path.length <= 255 && !path.split('/').includes('..');
  return isPlain && (isDatabase(path) || smallNames.test(path) || imageNames.test(path));
}

/** Tells whether a file of a backup is the database. */
export function isDatabase(path: string): boolean {
  return Object.values<string>(databaseEntries).includes(path);
}

/** Tells whether a file of a backup is of the configuration, the certificates or the units. */
export function isSmallFile(path: string): boolean {
  return smallNames.test(path);
}

/** Encodes the header of a file in a backup. */
export function headerOf(path: string, size: number): Buffer {
  return encodeHeader({ path, content: Buffer.alloc(0) }, size);
}
