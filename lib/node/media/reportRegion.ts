import { smallestReportSpace, type BundleMetadata } from '#bundle/metadata';
import { digestOf, type Digest, parseJsonIfValid } from '#content/oci';
import { count, matches, object, text } from '#schema';

/** The size of a page of a drive, and of the header of a slot, in bytes. */
const page = 4096;
/** The size of a slot, in bytes. */
const slotSize = smallestReportSpace / 2;
const firstLine = 'oc-disconnected-report 1';
/** The largest number of slots that are read and written. */
const mostSlots = 256;
/** The alignment of a region after a bundle, in bytes: the erase block of most drives. */
const alignment = 1024 * 1024;

/** The largest number of a report on a drive: after it, numbers could not grow. */
const lastSequence = 2 ** 48;
/** The largest number of places on a partition that are tried. */
const mostPlaces = 1024;

/** The largest file that a slot takes, in bytes. */
const slotLimit = slotSize - page;

const slotHeader = object({
  name: text(),
  sequence: count({ maximum: lastSequence }),
  size: count({ maximum: slotLimit }),
  digest: text(),
});

/** A part of a drive: its beginning and size in bytes. */
export interface Region {
  readonly offset: number;
  readonly size: number;
}

/** A report in a region. */
export interface StoredReport {
  /** The name of the file, such as `update-report-<cluster>-<time>.json`. */
  readonly name: string;
  /** Grows with each report that is written to the region. */
  readonly sequence: number;
  readonly content: Buffer;
}

/** Bytes to write at an offset of a region. All of them must be on the drive before the next ones are written. */
export interface RegionWrite {
  readonly offset: number;
  readonly bytes: Buffer;
}

/** Reads bytes of a region; fewer at its end. */
export type ReadRegion = (offset: number, size: number) => Promise<Buffer>;

/** Returns the region after a bundle that its metadata declares for reports; undefined for none. */
export function reportRegionOf({ size, reports }: Pick<BundleMetadata, 'size' | 'reports'>): Region | undefined {
  const { space } = reports ?? {};
  return space === undefined ? undefined : { offset: Math.ceil(size / alignment) * alignment, size: space };
}

/** Returns whether a file or device may be a region, by its beginning. */
export function isRegion(head: Buffer): boolean {
  return head.toString('latin1', 0, firstLine.length + 1) === `${firstLine}\n`;
}

/** Reads the reports in a region, the newest first. Leaves out what is not whole. */
export async function readReports(size: number, read: ReadRegion): Promise<StoredReport[]> {
  const reports: StoredReport[] = [];
  for (const offset of listOffsets(size)) {
    const report = await readSlot(offset, read);
    if (report) reports.push(report);
  }
  return reports.toSorted((a, b) => b.sequence - a.sequence);
}

/** The bytes that are read at once to find reports on a partition. */
const scanSize = 4 * 1024 * 1024;

/**
 * Finds reports anywhere on a partition, without its file system, which a power failure may have damaged. Yields them
 * in the order of their places. Reads the whole partition, and no more than 1024 places that look like a report.
 */
export async function* scanReports(read: ReadRegion): AsyncGenerator<StoredReport> {
  const beginning = Buffer.from(`${firstLine}\n`);
  let places = 0;
  for (let start = 0; ; start += scanSize) {
    const bytes = await read(start, scanSize);
    if (bytes.length === 0) return;
    for (let at = bytes.indexOf(beginning); at >= 0; at = bytes.indexOf(beginning, at + 1)) {
      // File systems begin a file at a sector.
      if (at % 512 !== 0) continue;
      if ((places += 1) > mostPlaces) return;
      const report = await readSlot(start + at, read);
      if (report) yield report;
    }
  }
}

/**
 * Plans to write a report into the slot of a region that is needed least: an empty one, or the oldest of a cluster with
 * several reports, or the oldest. The newest report of the same cluster is never replaced, so it stays whole if the
 * power fails at any byte. The content comes before the header that counts it. Undefined if the region already has the
 * content. Throws a RangeError for content that is too large.
 */
export async function planReport(
  size: number,
  { name, content }: Pick<StoredReport, 'name' | 'content'>,
  read: ReadRegion,
): Promise<readonly RegionWrite[] | undefined> {
  if (content.length > slotLimit) throw new RangeError(`a report has at most ${slotLimit} bytes`);
  const slots = await readSlots(size, read);
  if (slots.length < 2) throw new RangeError('the region is too small for two reports');
  // The same report, encrypted again, has other bytes.
  const digest = digestOf(content);
  const isSame = ({ report }: Slot): boolean =>
    report?.name === name && (name.endsWith('.gpg') || report.digest === digest);
  if (slots.some(isSame)) return undefined;
  const newest = Math.max(0, ...slots.map(({ report }) => report?.sequence ?? 0));
  const line = JSON.stringify({ name, sequence: newest + 1, size: content.length, digest });
  const header = Buffer.alloc(page);
  header.write(`${firstLine}\n${digestOf(line)}\n${line}\n`);
  const { offset } = chooseSlot(slots, clusterOf(name));
  // Whole pages, so that the drive reads none back.
  const padded = Buffer.alloc(Math.ceil(content.length / page) * page);
  content.copy(padded);
  return [
    { offset: offset + page, bytes: padded },
    { offset, bytes: header },
  ];
}

interface Slot {
  readonly offset: number;
  /** The report in it, without its content: all of them together may be large. */
  readonly report: (Pick<StoredReport, 'name' | 'sequence'> & { readonly digest: Digest }) | undefined;
}

function listOffsets(size: number): number[] {
  const count = Math.min(Math.floor(size / slotSize), mostSlots);
  return Array.from({ length: count }, (_, index) => index * slotSize);
}

async function readSlots(size: number, read: ReadRegion): Promise<Slot[]> {
  const slots: Slot[] = [];
  for (const offset of listOffsets(size)) {
    const stored = await readSlot(offset, read);
    const report = stored && { name: stored.name, sequence: stored.sequence, digest: digestOf(stored.content) };
    slots.push({ offset, report });
  }
  return slots;
}

async function readSlot(offset: number, read: ReadRegion): Promise<StoredReport | undefined> {
  const header = await read(offset, page);
  if (!isRegion(header)) return undefined;
  const [, stated = '', line = ''] = header.toString('utf8').split('\n');
  if (digestOf(line) !== stated) return undefined;
  const value = parseJsonIfValid(line);
  if (!matches(slotHeader, value)) return undefined;
  const { name, sequence, size, digest } = value;
  const content = await read(offset + page, size);
  return digestOf(content) === digest ? { name, sequence, content } : undefined;
}

function chooseSlot(slots: readonly Slot[], cluster: string): Slot {
  const ageOf = ({ report }: Slot): number => report?.sequence ?? -1;
  const sorted = slots.toSorted((a, b) => ageOf(a) - ageOf(b));
  const isNewest = (slot: Slot): boolean =>
    sorted.findLast(({ report }) => report && slot.report && clusterOf(report.name) === clusterOf(slot.report.name)) ===
    slot;
  const isOwnNewest = (slot: Slot): boolean =>
    slot.report !== undefined && clusterOf(slot.report.name) === cluster && isNewest(slot);
  const [fallback] = slots;
  const chosen =
    sorted.find(({ report }) => !report) ??
    sorted.find((slot) => !isNewest(slot)) ??
    sorted.find((slot) => !isOwnNewest(slot)) ??
    fallback;
  if (!chosen) throw new RangeError('the region has no slot');
  return chosen;
}

/** Returns the cluster in the name of a report, which comes before its time. */
function clusterOf(name: string): string {
  return name.replace(/-[^-]*$/, '');
}
