import { parseJson } from '#content/oci';
import { messageOf, PluginError } from '#errors';
import { fieldsOf, fieldsWith, isCount, isText, listWith, optional, type Test } from '#fields';
import { isSignedBy, parseEnvelope, readPolicyKey, type PolicyKey } from '#release/sigstore';
import { isSiteReport, type SiteReport } from './siteReport.ts';

/** The media type of the content of a signed report. */
export const updateReportType = 'application/vnd.oc-disconnected.update-report+json';

/** The largest content of a report, and the largest file with a signed one, in bytes. */
export const updateReportLimits = { content: 2_500_000, file: 4 * 1024 * 1024 - 4096 };

/** Why a report was made: an update has ended, its progress has stopped, or some time has passed. */
const reportReasons = ['Completed', 'Failed', 'Stopped', 'Current'] as const;

/** What a cluster tells about its updates and its site. A drive brings it to the engineer who creates bundles. */
export interface UpdateReport {
  readonly formatVersion: 1;
  /** The ID of the cluster. */
  readonly cluster: string;
  /** Grows by one with each report of an installation. */
  readonly sequence: number;
  /** The time of the report by the clock of the cluster (RFC 3339). */
  readonly created: string;
  readonly reason: (typeof reportReasons)[number];
  readonly tool: string;
  readonly site: SiteReport;
  /** The records of updates, the newest first. */
  readonly updates: readonly ReportedUpdate[];
  /** The state of an update that failed or stopped, as `gather` writes it. Files may be left out or shortened. */
  readonly gathered?: readonly { readonly path: string; readonly content: string }[];
  /** The files that are left out or shortened. */
  readonly shortened?: readonly string[];
}

/** The record of one update, with times (RFC 3339). */
export interface ReportedUpdate {
  readonly name: string;
  readonly created: string;
  readonly phase: string;
  readonly version?: string;
  /** The digest of the allowed bundle. */
  readonly digest?: string;
  readonly lastProgress?: string;
  /** The conditions, each with the time of its last change. */
  readonly conditions: readonly {
    readonly type: string;
    readonly status: string;
    readonly reason: string;
    readonly message: string;
    readonly time: string;
  }[];
  readonly hops: readonly { readonly version: string; readonly phase: string }[];
  /** The backups of etcd: their node, place and digest. Sizes are in bytes. */
  readonly backups: readonly {
    readonly node: string;
    readonly path: string;
    readonly copy?: string;
    readonly version: string;
    readonly time: string;
    readonly size: number;
    readonly digest: string;
  }[];
  readonly nodes: readonly {
    readonly name: string;
    readonly phase: string;
    /** Free bytes for images. */
    readonly free?: number;
    readonly message?: string;
  }[];
}

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

const isTime: Test = (value) => typeof value === 'string' && !Number.isNaN(Date.parse(value));
const isSafe = (pattern: RegExp): Test => {
  return (value) => typeof value === 'string' && pattern.test(value);
};
const text: Test = (value) => typeof value === 'string' && value.length <= 100_000;

const hasForm = fieldsWith({
  // These two become the name of a file.
  cluster: isSafe(/^[0-9a-z][0-9a-z-]{0,62}$/),
  created: isSafe(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/),
  sequence: isCount,
  tool: text,
  reason: (value) => reportReasons.some((each) => each === value),
  site: isSiteReport,
  updates: listWith(
    fieldsWith({
      name: text,
      created: isTime,
      phase: text,
      version: optional(text),
      digest: optional(text),
      lastProgress: optional(isTime),
      conditions: listWith(fieldsWith({ type: text, status: text, reason: text, message: text, time: isTime })),
      hops: listWith(fieldsWith({ version: text, phase: text })),
      backups: listWith(
        fieldsWith({ node: text, path: text, copy: optional(text), version: text, time: isTime, digest: text }),
      ),
      nodes: listWith(fieldsWith({ name: text, phase: text, free: optional(isCount), message: optional(text) })),
    }),
  ),
  gathered: optional(listWith(fieldsWith({ path: text, content: isText }))),
  shortened: optional(listWith(text)),
});

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
    if (!hasForm(value)) throw new TypeError('a field is missing or malformed');
    // No other bytes mean the same, such as with repeated keys.
    if (!Buffer.from(JSON.stringify(value)).equals(envelope.payload)) throw new TypeError('it is not in its one form');
    return { report: value as UpdateReport, envelope };
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
