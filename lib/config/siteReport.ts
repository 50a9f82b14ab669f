import { messageOf, PluginError } from '../errors.ts';
import { parseSiteText } from './siteText.ts';
import type { SiteReport } from './siteTypes.ts';
import { fieldsWith, isCount, isText, listWith, optional } from '../fields.ts';
import { digestOf } from '../content/oci/digest.ts';
import { parseJson } from '../content/oci/syntax.ts';

/** A report is at most this large, in bytes. */
export const siteReportLimit = 1024 * 1024;

/** Formats a report as JSON, with the digest of its content. Throws `too-large` above the limit. */
export function formatSiteReport(report: SiteReport): string {
  const indented = JSON.stringify({ ...report, digest: digestOf(JSON.stringify(report)) }, null, 2);
  const text = indented.length < siteReportLimit ? indented : JSON.stringify(JSON.parse(indented));
  if (text.length < siteReportLimit) return `${text}\n`;
  throw new PluginError('too-large', `the report of the site has more than ${siteReportLimit} bytes`);
}

/** Parses a report, as JSON or as text. Throws `invalid-file` for other content, another format, or a digest that does not match. */
export function parseSiteReport(text: string, where: string): SiteReport {
  if (!text.trimStart().startsWith('{')) return parseSiteText(text, where);
  let value: unknown;
  try {
    value = parseJson(text);
  } catch (cause) {
    throw invalid(where, messageOf(cause), cause);
  }
  if (typeof value !== 'object' || value === null || !('digest' in value)) throw invalid(where, 'it has no digest');
  const { digest, ...report } = value;
  if (!isSiteReport(report)) throw invalid(where, 'it has another format; this program reads formatVersion 1');
  if (digestOf(JSON.stringify(report)) !== digest) throw invalid(where, 'it was changed: its digest does not match');
  return report;
}

// What `create` and lists of sites read without a further test.
const hasForm = fieldsWith({
  ...{ created: isText, tool: isText, version: isText, arch: isText, cluster: optional(isText) },
  reportKey: optional(isText),
  history: listWith(fieldsWith({ version: isText, started: optional(isText), completed: optional(isText) })),
  nodes: listWith(fieldsWith({ name: isText, free: optional(isCount) })),
  operators: listWith(fieldsWith({ name: isText, channel: isText, version: isText })),
  findings: listWith(fieldsWith({ severity: isText, object: isText, message: isText })),
});

/** Returns whether a value has the form of a report. The digest of a report covers other fields, which only this program writes. */
export function isSiteReport(value: unknown): value is SiteReport {
  return hasForm(value) && (value as { formatVersion?: unknown }).formatVersion === 1;
}

function invalid(where: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-file', `${where} is not the report of a site: ${why}`, {
    hint: 'Create it at the site again: oc adm-upgrade-bundle preflight, with the file for the report.',
    cause,
  });
}
