import { createHash } from 'node:crypto';
import { digestOf, parseJson } from '#content/oci';
import { messageOf, PluginError } from '#errors';
import { fieldsWith, isCount, isText, listWith, optional } from '#fields';
import type { AdminGate, GateConditions } from '#release/payload';

/** A report is at most this large, in bytes. */
export const siteReportLimit = 1024 * 1024;

/** Formats a report as JSON, with the digest of its content. Throws `too-large` above the limit. */
export function formatSiteReport(report: SiteReport): string {
  const indented = JSON.stringify({ ...report, digest: digestOf(JSON.stringify(report)) }, null, 2);
  const text = indented.length < siteReportLimit ? indented : JSON.stringify(JSON.parse(indented));
  if (text.length < siteReportLimit) return `${text}\n`;
  throw new PluginError('too-large', `the report of the site has more than ${siteReportLimit} bytes`);
}

/**
 * Parses a report, as JSON or as text. Throws `invalid-file` for other content, another format, or a digest that does
 * not match.
 */
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
  created: isText,
  tool: isText,
  version: isText,
  arch: isText,
  cluster: optional(isText),
  reportKey: optional(isText),
  history: listWith(fieldsWith({ version: isText, started: optional(isText), completed: optional(isText) })),
  nodes: listWith(fieldsWith({ name: isText, free: optional(isCount) })),
  operators: listWith(fieldsWith({ name: isText, channel: isText, version: isText })),
  findings: listWith(fieldsWith({ severity: isText, object: isText, message: isText })),
});

/**
 * Returns whether a value has the form of a report. The digest of a report covers other fields, which only this program
 * writes.
 */
export function isSiteReport(value: unknown): value is SiteReport {
  return hasForm(value) && (value as { formatVersion?: unknown }).formatVersion === 1;
}

function invalid(where: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-file', `${where} is not the report of a site: ${why}`, {
    hint: 'Create it at the site again: oc adm-upgrade-bundle preflight, with the file for the report.',
    cause,
  });
}

const title = 'oc-disconnected site 1';

/**
 * Formats the facts of a report that plan a bundle as short lines, which can be typed: version, architecture, channel,
 * free space and operators. Each line ends with a check of four hex digits, and the last one checks them all.
 */
export function formatSiteText({ version, arch, channel, created, nodes, operators }: SiteReport): string {
  const free = nodes.flatMap((node) => node.free ?? []);
  const lines = [
    title,
    `created ${created}`,
    `cluster ${version} ${arch} ${channel === '' ? '-' : channel}`,
    `nodes ${nodes.length} free ${free.length === 0 ? '-' : Math.floor(Math.min(...free) / 2 ** 30)}`,
    ...operators.map(({ name, channel: of, version: installed, catalog, maxOpenShiftVersion: max }) =>
      [
        'operator',
        name,
        ...[of, installed, catalog, max].map((word) => (word === undefined || word === '' ? '-' : word)),
      ].join(' '),
    ),
  ];
  const all = [...lines, `end ${lines.length}`];
  return all.map((line, index) => `${line} #${checkOf(index === lines.length ? lines.join('\n') : line)}\n`).join('');
}

/**
 * Parses the text form of a report. Ignores blank lines and the number of blanks between words. Throws `invalid-file`
 * with the line that is mistyped or missing.
 */
function parseSiteText(text: string, where: string): SiteReport {
  const typed = text.split('\n').map((line) => line.trim().split(/\s+/).join(' '));
  const lines: string[] = [];
  let end: string | undefined;
  for (const [index, line] of typed.entries()) {
    if (line === '') continue;
    const [, content = '', check] = /^(.*) #([0-9a-f]{4})$/.exec(line) ?? [];
    const isEnd = content.startsWith('end ');
    if (check !== checkOf(isEnd ? lines.join('\n') : content)) {
      const why = isEnd ? 'lines before it are missing or in another order' : 'it is mistyped';
      throw invalidText(where, `line ${index + 1}: ${why}`);
    }
    if (isEnd) end = content;
    else lines.push(content);
  }
  const [first, ...rest] = lines;
  if (first !== title) throw invalidText(where, `it does not begin with “${title}”`);
  if (end !== `end ${lines.length}`) throw invalidText(where, 'its last line is missing');
  const words = rest.map((line) => line.split(' ').map((word) => (word === '-' ? '' : word)));
  const wordsOf = (kind: string): readonly string[] => words.find(([word]) => word === kind) ?? [];
  const [, version = '', arch = '', channel = ''] = wordsOf('cluster');
  const [, count = '0', , free = ''] = wordsOf('nodes');
  const nodes = Array.from({ length: Math.min(Number(count), 10_000) }, (_, index) => ({
    name: `node ${index + 1}`,
    architecture: '',
    ...(free !== '' && { free: Number(free) * 2 ** 30 }),
  }));
  const operators = words.flatMap(([kind, ...fields]) => (kind === 'operator' ? [readOperator(fields)] : []));
  const [, created = ''] = wordsOf('created');
  return {
    formatVersion: 1,
    created,
    tool: title,
    version,
    arch,
    channel,
    history: [],
    nodes,
    operators,
    findings: [],
  };
}

function readOperator([
  name = '',
  channel = '',
  version = '',
  catalog = '',
  max = '',
]: readonly string[]): SiteOperator {
  return { name, channel, version, catalog, ...(max !== '' && { maxOpenShiftVersion: max }) };
}

function checkOf(line: string): string {
  return createHash('sha256').update(line).digest('hex').slice(0, 4);
}

function invalidText(where: string, why: string): PluginError {
  return new PluginError('invalid-file', `${where} is not the report of a site: ${why}`, {
    hint: 'Compare the line with the original. Each line ends with # and four digits that check it.',
  });
}

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

/** A node of a site. Sizes are in bytes, for images. */
interface SiteNode {
  readonly name: string;
  readonly architecture: string;
  readonly capacity?: number;
  readonly free?: number;
  /** The name and version of its operating system. */
  readonly os?: string;
}

/** A machine config pool of a site. */
interface SitePool {
  readonly name: string;
  readonly machines: number;
  readonly paused: boolean;
  /** The stream of its operating system (`osImageStream`), if it names one. */
  readonly osStream?: string;
}

/** An API that a later version of Kubernetes removes, and that clients of a site used within a day. */
export interface SiteApi {
  /** Such as `flowschemas.v1beta3.flowcontrol.apiserver.k8s.io`. */
  readonly name: string;
  /** The minor version of Kubernetes without it: `1.32`. */
  readonly removedIn: string;
  /** The names of its users, at most ten. */
  readonly users: readonly string[];
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
  /** The ID of the cluster; absent in the text form. */
  readonly cluster?: string;
  /** The public key with which the installation signs its reports, in PEM form; absent if it signs none. */
  readonly reportKey?: string;
  /** The releases of the cluster, the latest first. Times are of RFC 3339. */
  readonly history: readonly {
    readonly version: string;
    readonly state: string;
    readonly image?: string;
    readonly started?: string;
    readonly completed?: string;
  }[];
  readonly nodes: readonly SiteNode[];
  /** The fields below are absent in the text form. */
  readonly pools?: readonly SitePool[];
  /** The feature set of the cluster, and single feature gates that it changes. */
  readonly featureGates?: {
    readonly featureSet: string;
    readonly enabled: readonly string[];
    readonly disabled: readonly string[];
  };
  /**
   * The image policies of the cluster, with the SHA-256 of their roots of trust, or the reason why nodes refuse all
   * images.
   */
  readonly policies?: readonly {
    readonly name: string;
    readonly namespace?: string;
    readonly scopes: readonly string[];
    readonly key?: string;
    readonly unsupported?: string;
  }[];
  /** The images that each node has: SHA-256 digests in hex, by their repositories. */
  readonly heldImages?: Readonly<Record<string, readonly string[]>>;
  /** The images of workloads that are not from the repositories of the release. */
  readonly otherImages?: readonly string[];
  /** The acknowledgements that the running release requires before another minor version, and that were not given. */
  readonly acknowledgements?: readonly AdminGate[];
  /** What decides which acknowledgements operators require at run time; a field is absent if it is not known. */
  readonly gateConditions?: Partial<GateConditions>;
  /** The APIs in use that a later version of Kubernetes removes. */
  readonly removedApis?: readonly SiteApi[];
  readonly operators: readonly SiteOperator[];
  /** The blockers and warnings of preflight. */
  readonly findings: readonly { readonly severity: string; readonly object: string; readonly message: string }[];
}
