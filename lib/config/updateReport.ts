import { parseJson } from '#content/oci';
import { messageOf, PluginError } from '#errors';
import { fieldsOf } from '#fields';
import { isSignedBy, parseEnvelope, readPolicyKey, type PolicyKey } from '#release/sigstore';
import { choice, count, list, matches, object, optional, text, time, type Static } from '#schema';
import { siteReport } from './siteReport.ts';

/** The media type of the content of a signed report. */
export const updateReportType = 'application/vnd.oc-disconnected.update-report+json';

/** The largest content of a report, and the largest file with a signed one, in bytes. */
export const updateReportLimits = { content: 2_500_000, file: 4 * 1024 * 1024 - 4096 };

// A signed report may be from an unknown installation, so its texts have a limit.
const line = text({ where: ({ length }) => length <= 100_000 });

const update = object({
  name: line,
  created: time(),
  phase: line,
  version: optional(line),
  /** The digest of the allowed bundle. */
  digest: optional(line),
  lastProgress: optional(time()),
  /** The conditions, each with the time of its last change. */
  conditions: list(object({ type: line, status: line, reason: line, message: line, time: time() })),
  hops: list(object({ version: line, phase: line })),
  /** The backups of etcd: their node, place and digest. Sizes are in bytes. */
  backups: list(
    object({ node: line, path: line, copy: optional(line), version: line, time: time(), size: count(), digest: line }),
  ),
  /** The nodes, with their free bytes for images. */
  nodes: list(object({ name: line, phase: line, free: optional(count()), message: optional(line) })),
});

const updateReport = object({
  formatVersion: choice([1]),
  /** The ID of the cluster. It becomes part of the name of a file, as the time does. */
  cluster: text({ pattern: '^[0-9a-z][0-9a-z-]{0,62}$' }),
  /** Grows by one with each report of an installation. */
  sequence: count(),
  /** The time of the report by the clock of the cluster (RFC 3339). */
  created: text({ pattern: String.raw`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$` }),
  /** Why it was made: an update has ended, its progress has stopped, or some time has passed. */
  reason: choice(['Completed', 'Failed', 'Stopped', 'Current']),
  tool: line,
  site: siteReport,
  /** The records of updates, the newest first. */
  updates: list(update),
  /** The state of an update that failed or stopped, as `gather` writes it. Files may be left out or shortened. */
  gathered: optional(list(object({ path: line, content: text() }))),
  /** The files that are left out or shortened. */
  shortened: optional(list(line)),
});

/** What a cluster tells about its updates and its site. A drive brings it to the engineer who creates bundles. */
export type UpdateReport = Static<typeof updateReport>;

/** The record of one update, with times (RFC 3339). */
export type ReportedUpdate = Static<typeof update>;

/** A report whose signature was checked. */
export interface OpenedReport {
  readonly report: UpdateReport;
  /** The fingerprint of the key that signed it: the SHA-256 of its SPKI form, in hex. */
  readonly signer: string;
  /**
   * Whether a key that the caller trusts has signed it. Otherwise the report itself names the key, which proves no
   * origin.
   */
  readonly trusted: boolean;
}

/** Returns the only bytes that parseUpdateReport reads as this report. Throws `too-large`. */
export function encodeUpdateReport(report: UpdateReport): Buffer {
  const bytes = Buffer.from(JSON.stringify(report));
  if (bytes.length <= updateReportLimits.content) return bytes;
  const message = `the report has ${bytes.length} bytes, more than the limit of ${updateReportLimits.content}`;
  throw new PluginError('too-large', message);
}

/** Returns the name of the file of a report: that of the cluster and the time. */
export function nameUpdateReport({ cluster, created }: Pick<UpdateReport, 'cluster' | 'created'>): string {
  return `update-report-${cluster}-${created.replace(/[-:]|\.\d+/g, '')}.json`;
}

const getAgain = 'Copy the report from the drive again, or have the site bring another one.';

/** Returns whether a file may be a signed report, by its beginning. */
export function isUpdateReport(bytes: Buffer): boolean {
  return bytes.subarray(0, 400).toString('latin1').includes(updateReportType);
}

/**
 * Opens a signed report. With keys, one of them must have signed it; otherwise the key that the report itself names.
 * `where` is for messages. Throws `untrusted` for another signature, and `invalid-file`.
 */
export function openUpdateReport(bytes: Buffer, where: string, keys: readonly PolicyKey[]): OpenedReport {
  const { report, envelope } = parse(bytes, where);
  const isBy = ({ key }: PolicyKey): boolean => isSignedBy(updateReportType, envelope, key);
  const trustedKey = keys.find(isBy);
  if (trustedKey) return { report, signer: trustedKey.fingerprint, trusted: true };
  const own = ownKeyOf(report);
  if (keys.length > 0) {
    const isOther = own && isBy(own);
    const why = isOther ? `it is signed by ${own.fingerprint}` : 'nor by the key that it names, so it may be changed';
    throw new PluginError('untrusted', `${where} has no signature by a given key${isOther ? ':' : ','} ${why}`, {
      hint: isOther ? 'Give the key of this cluster: the report that preflight exports at the site has it.' : getAgain,
    });
  }
  if (own && isBy(own)) return { report, signer: own.fingerprint, trusted: false };
  throw new PluginError('untrusted', `${where} was changed: its signature is not by the key that it names`, {
    hint: getAgain,
  });
}

function parse(bytes: Buffer, where: string) {
  if (bytes.length > updateReportLimits.file)
    throw new PluginError('too-large', `${where} has more than ${updateReportLimits.file} bytes`);
  try {
    const envelope = parseEnvelope(bytes, updateReportType);
    const value: unknown = parseJson(envelope.payload.toString('utf8'));
    const { formatVersion } = fieldsOf(value);
    if (formatVersion !== 1) throw new TypeError('its format is unknown; this program reads formatVersion 1');
    if (!matches(updateReport, value)) throw new TypeError('a field is missing or malformed');
    // No other bytes mean the same, such as with repeated keys.
    if (!Buffer.from(JSON.stringify(value)).equals(envelope.payload)) throw new TypeError('it is not in its one form');
    return { report: value, envelope };
  } catch (cause) {
    const message = `${where} is not the report of an update: ${messageOf(cause)}`;
    throw new PluginError('invalid-file', message, { hint: getAgain, cause });
  }
}

function ownKeyOf({ site: { reportKey } }: UpdateReport): PolicyKey | undefined {
  try {
    return reportKey === undefined ? undefined : readPolicyKey(Buffer.from(reportKey));
  } catch {
    return undefined;
  }
}
