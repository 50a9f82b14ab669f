import { messageOf, PluginError } from '../errors.ts';
import { parseSiteText } from './siteText.ts';
import type { SiteOperator, SiteReport } from './siteTypes.ts';
import { fieldsOf } from '../fields.ts';
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
