import { messageOf, PluginError } from '../errors.ts';
import { fieldsOf } from '../fields.ts';
import { digestOf } from '../oci/digest.ts';
import { parseJson } from '../oci/syntax.ts';

/** An operator that OLM installed at a site. */
export interface SiteOperator {
  /** The name of its package. */
  readonly name: string;
  readonly channel: string;
  /** The installed version. */
  readonly version: string;
  /** The name of the CatalogSource. */
  readonly catalog: string;
  /** The last minor version of OpenShift that it supports (`olm.maxOpenShiftVersion`), if it names one. */
  readonly maxOpenShiftVersion?: string;
}

/** The facts about a site that `create` needs to plan a bundle for it. It has no secrets. */
export interface SiteReport {
  readonly formatVersion: 1;
  /** The time of the report (RFC 3339). */
  readonly created: string;
  readonly tool: string;
  /** The running version, its architecture as in the tag of a release, and its update channel. */
  readonly version: string;
  readonly arch: string;
  readonly channel: string;
  /** The releases of the cluster, the latest first. */
  readonly history: readonly { readonly version: string; readonly state: string }[];
  readonly nodes: readonly { readonly name: string; readonly architecture: string; readonly capacity?: number }[];
  readonly operators: readonly SiteOperator[];
  /** The blockers and warnings of preflight. */
  readonly findings: readonly { readonly severity: string; readonly object: string; readonly message: string }[];
}

/** A report is at most this large, in bytes. */
export const siteReportLimit = 1024 * 1024;

/** Formats a report as JSON, with the digest of its content. */
export function formatSiteReport(report: SiteReport): string {
  return `${JSON.stringify({ ...report, digest: digestOf(JSON.stringify(report)) }, null, 2)}\n`;
}

/** Parses a report. Throws `invalid-file` for other content, another format, or a digest that does not match. */
export function parseSiteReport(text: string, where: string): SiteReport {
  let value: unknown;
  try {
    value = parseJson(text);
  } catch (cause) {
    throw invalid(where, messageOf(cause), cause);
  }
  if (typeof value !== 'object' || value === null || !('digest' in value)) throw invalid(where, 'it has no digest');
  const { digest, ...report } = value;
  if (!isReport(report)) throw invalid(where, 'it has another format; this program reads formatVersion 1');
  if (digestOf(JSON.stringify(report)) !== digest) throw invalid(where, 'it was changed: its digest does not match');
  return report;
}

// The digest covers the rest, which only this program writes.
function isReport(value: object): value is SiteReport {
  const { formatVersion, version, arch, operators } = value as Partial<Record<keyof SiteReport, unknown>>;
  const isText = typeof version === 'string' && typeof arch === 'string';
  return formatVersion === 1 && isText && Array.isArray(operators) && operators.every(isOperator);
}

function isOperator(value: unknown): value is SiteOperator {
  const { name, channel, version } = fieldsOf(value);
  return [name, channel, version].every((text) => typeof text === 'string');
}

function invalid(where: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-file', `${where} is not the report of a site: ${why}`, {
    hint: 'Create it at the site again: oc adm-upgrade-bundle preflight, with the file for the report.',
    cause,
  });
}
