import { createHash } from 'node:crypto';
import { digestOf, parseJson } from '#content/oci';
import { messageOf, PluginError } from '#errors';
import { adminGate, gateConditions } from '#release/payload';
import { choice, count, flag, list, mapping, matches, object, optional, text, type Static } from '#schema';

/** A report is at most this large, in bytes. */
export const siteReportLimit = 1024 * 1024;

const operator = object({
  /** The name of its package. */
  name: text(),
  channel: text(),
  /** The installed version. */
  version: text(),
  /** The name of the CatalogSource. */
  catalog: text(),
  /** The last minor version of OpenShift that it supports (`olm.maxOpenShiftVersion`), if it names one. */
  maxOpenShiftVersion: optional(text()),
});

const api = object({
  /** Such as `flowschemas.v1beta3.flowcontrol.apiserver.k8s.io`. */
  name: text(),
  /** The minor version of Kubernetes without it: `1.32`. */
  removedIn: text(),
  /** The names of its users, at most ten. */
  users: list(text()),
});

/** The statement of a report. Its digest is beside these fields. */
export const siteReport = object({
  formatVersion: choice([1]),
  /** The time of the report (RFC 3339). */
  created: text(),
  tool: text(),
  /** The running version, its architecture as in the tag of a release, and its update channel. */
  version: text(),
  arch: text(),
  channel: text(),
  /** The ID of the cluster; absent in the text form. */
  cluster: optional(text()),
  /** The public key with which the installation signs its reports, in PEM form; absent if it signs none. */
  reportKey: optional(text()),
  /** The releases of the cluster, the latest first. Times are of RFC 3339. */
  history: list(
    object({
      version: text(),
      state: text(),
      image: optional(text()),
      started: optional(text()),
      completed: optional(text()),
    }),
  ),
  /** The nodes. Sizes are in bytes, for images. `os` is the name and version of the operating system. */
  nodes: list(
    object({
      name: text(),
      architecture: text(),
      capacity: optional(count()),
      free: optional(count()),
      os: optional(text()),
    }),
  ),
  /**
   * The machine config pools, with the stream of their operating system (`osImageStream`), if they name one. The fields
   * from here to `removedApis` are absent in the text form.
   */
  pools: optional(list(object({ name: text(), machines: count(), paused: flag(), osStream: optional(text()) }))),
  /** The feature set of the cluster, and single feature gates that it changes. */
  featureGates: optional(object({ featureSet: text(), enabled: list(text()), disabled: list(text()) })),
  /**
   * The image policies of the cluster, with the SHA-256 of their roots of trust, or the reason why nodes refuse all
   * images.
   */
  policies: optional(
    list(
      object({
        name: text(),
        namespace: optional(text()),
        scopes: list(text()),
        key: optional(text()),
        unsupported: optional(text()),
      }),
    ),
  ),
  /** The images that each node has: SHA-256 digests in hex, by their repositories. */
  heldImages: optional(mapping(text(), list(text()))),
  /** The images of workloads that are not from the repositories of the release. */
  otherImages: optional(list(text())),
  /** The acknowledgements that the running release requires before another minor version, and that were not given. */
  acknowledgements: optional(list(adminGate)),
  /** What decides which acknowledgements operators require at run time; a field is absent if it is not known. */
  gateConditions: optional(gateConditions),
  /** The APIs in use that a later version of Kubernetes removes. */
  removedApis: optional(list(api)),
  operators: list(operator),
  /** The blockers and warnings of preflight. */
  findings: list(object({ severity: text(), object: text(), message: text() })),
});

/** The facts about a site that `create` needs to plan a bundle for it. It has no secrets. */
export type SiteReport = Static<typeof siteReport>;

/** An operator that OLM installed at a site, by its Subscription. */
export type SiteOperator = Static<typeof operator>;

/** An API that a later version of Kubernetes removes, and that clients of a site used within a day. */
export type SiteApi = Static<typeof api>;

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
  if (!matches(siteReport, report)) throw invalid(where, 'it has another format; this program reads formatVersion 1');
  if (digestOf(JSON.stringify(report)) !== digest) throw invalid(where, 'it was changed: its digest does not match');
  return report;
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
