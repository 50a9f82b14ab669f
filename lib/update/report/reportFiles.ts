import { open, stat, type FileHandle } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { openBundle } from '#bundle/open';
import { parseSiteReport } from '#config/siteReport';
import { isUpdateReport, openUpdateReport, updateReportLimits, type OpenedReport } from '#config/updateReport';
import { RootFolder, readSmallFile } from '#content/files';
import { checkInterrupted, type Context } from '#context';
import { asFailure, messageOf, PluginError } from '#errors';
import { firstEntryOf, isRegion, readReports, reportRegionOf, scanReports, type Region, reportFile } from '#node/media';
import { decryptWith, isEncrypted } from '#release/signature';
import { readPolicyKey, type PolicyKey } from '#release/sigstore';

/** The keys with which reports are opened: to trust their senders, and to decrypt them. */
export interface ReportTrust {
  /** The keys of clusters that are trusted. Without any, a report counts as what its own key says. */
  readonly keys: readonly PolicyKey[];
  /** A file with the OpenPGP private key for encrypted reports. */
  readonly decryptionKey?: string | undefined;
}

/** A report of a file, a folder or a drive, or why it cannot be used. */
export interface FoundReport {
  /** The file, and the name of the report if the file has several. */
  readonly where: string;
  readonly opened?: OpenedReport;
  /** The signed file, not encrypted. */
  readonly envelope?: Buffer;
  readonly problem?: PluginError;
}

/** The names of files that are read in a folder, and the largest number of its entries. */
const fileName = /^(?:update-report-[\w.-]{1,150}|[^\p{C}]{1,150}\.(?:json|gpg|pgp|asc|img))$/u;
const entryLimit = 20_000;
const regionLimit = 1024 ** 3;

/**
 * Reads a key that signs reports: a public key in PEM form, or the report of a site that `preflight` exported there,
 * which has the key. Throws `invalid-file` and the errors of reading.
 */
export async function readReportKeyFile(file: string): Promise<PolicyKey & { readonly since?: string }> {
  const bytes = await readSmallFile(file, updateReportLimits.file);
  const isSite = bytes.toString('latin1', 0, 100).trimStart().startsWith('{');
  const site = isSite ? parseSiteReport(bytes.toString(), file) : undefined;
  try {
    if (site && site.reportKey === undefined) throw new TypeError('the site had no key for reports at that time');
    const key = readPolicyKey(site ? Buffer.from(site.reportKey ?? '') : bytes);
    return { ...key, ...(site && { since: site.created }) };
  } catch (cause) {
    throw new PluginError('invalid-file', `${file} has no key for reports: ${messageOf(cause)}`, {
      hint: 'Allow reports at the site, and export a report of the site there.',
      cause,
    });
  }
}

/**
 * Finds all reports of a file, a folder, or a device with a bundle and space for reports, one after the other. A report
 * that cannot be used is returned with its problem. Throws `not-found`, `not-readable`, and `too-large` for a folder
 * with too many entries.
 */
export async function* findReports(path: string, trust: ReportTrust, context: Context): AsyncGenerator<FoundReport> {
  const stats = await stat(path).catch((cause: unknown) => {
    throw new PluginError('not-found', `${path} does not exist`, { cause });
  });
  if (stats.isBlockDevice()) return yield* await findOnDevice(path, trust, context);
  if (!stats.isDirectory()) return yield* await findInFile(path, () => open(path), trust);
  const folder = new RootFolder(path);
  const entries = await folder.list('', (name) => fileName.test(name), entryLimit);
  for (const { path: name, stats: own } of entries) {
    checkInterrupted(context.signal);
    const where = join(path, name);
    if (own.isDirectory()) continue;
    const limit = name.endsWith('.img') ? regionLimit : updateReportLimits.file;
    if (!own.isFile()) yield reject(where, 'it is not a regular file, and is not opened');
    else if (own.size > limit) yield reject(where, `it has more than ${limit} bytes`);
    else yield* await findInFile(where, () => folder.open(name), trust);
  }
}

async function findInFile(
  where: string,
  openFile: () => Promise<FileHandle>,
  trust: ReportTrust,
): Promise<FoundReport[]> {
  try {
    await using file = await openFile();
    const { size } = await file.stat();
    const head = await readAt(file, 0, 4096);
    if (basename(where) === reportFile || isRegion(head))
      return await findInRegion(file, { offset: 0, size }, where, trust);
    if (size > updateReportLimits.file) return [reject(where, `it has more than ${updateReportLimits.file} bytes`)];
    return [await openReport(await readAt(file, 0, size), where, trust)];
  } catch (error) {
    return [{ where, problem: asFailure(error) }];
  }
}

async function findOnDevice(path: string, trust: ReportTrust, context: Context): Promise<FoundReport[]> {
  await using file = await open(path);
  if (firstEntryOf(await readAt(file, 0, 4096)) === undefined) return await findOnPartition(file, path, trust, context);
  await using bundle = await openBundle(path, context);
  const region = reportRegionOf(bundle.metadata);
  if (region) return await findInRegion(file, region, path, trust);
  throw new PluginError('not-found', `the bundle on ${path} leaves no space for reports`, {
    hint: 'If the drive has a partition for reports, name that.',
  });
}

/** The largest number of reports that are read on a partition, which may repeat one. */
const partitionLimit = 256;

async function findOnPartition(
  file: FileHandle,
  path: string,
  trust: ReportTrust,
  context: Context,
): Promise<FoundReport[]> {
  const read = async (offset: number, length: number): Promise<Buffer> => {
    checkInterrupted(context.signal);
    return await readAt(file, offset, length);
  };
  const found: FoundReport[] = [];
  for await (const { name, content } of scanReports(read)) {
    if (found.length < partitionLimit) found.push(await openReport(content, `${path} (${name})`, trust));
  }
  return found;
}

async function findInRegion(
  file: FileHandle,
  { offset, size }: Region,
  where: string,
  trust: ReportTrust,
): Promise<FoundReport[]> {
  const stored = await readReports(size, (at, length) => readAt(file, offset + at, length));
  const found: FoundReport[] = [];
  for (const { name, content } of stored) found.push(await openReport(content, `${where} (${name})`, trust));
  return found;
}

async function openReport(bytes: Buffer, where: string, { keys, decryptionKey }: ReportTrust): Promise<FoundReport> {
  try {
    const envelope = isEncrypted(bytes) ? await decrypt(bytes, where, decryptionKey) : bytes;
    if (!isUpdateReport(envelope)) throw describeOther(envelope, where);
    return { where, opened: openUpdateReport(envelope, where, keys), envelope };
  } catch (error) {
    return { where, problem: asFailure(error) };
  }
}

function describeOther(bytes: Buffer, where: string): PluginError {
  const isSite = bytes.toString('latin1', 0, 400).includes('"formatVersion"');
  return new PluginError('invalid-file', `${where} is not the report of an update`, {
    hint: isSite
      ? 'If preflight exported it at the site, it has the key: give it beside the report of an update.'
      : 'Give a drive with reports, its partition, or a file update-report-* from it.',
  });
}

async function decrypt(bytes: Buffer, where: string, key: string | undefined): Promise<Buffer> {
  if (key !== undefined) return await decryptWith(key, bytes, where, updateReportLimits.file);
  throw new PluginError('not-readable', `${where} is encrypted`, {
    hint: 'Give the private key for it, or decrypt it with gpg first.',
    settings: ['decryptionKey'],
  });
}

async function readAt(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, offset);
  return buffer.subarray(0, bytesRead);
}

function reject(where: string, why: string): FoundReport {
  return { where, problem: new PluginError('invalid-file', `${where}: ${why}`) };
}
