import { messageOf, PluginError } from '#errors';
import { readDocuments } from '../files/documents.ts';
import { readSmallFile } from '../files/smallFile.ts';
import type { Reference } from '../oci/reference.ts';

/** The mirrors of one source, as an entry of a mirror set states them. */
export interface MirrorRule {
  /** The kind of pull: by digest (ImageDigestMirrorSet, ImageContentSourcePolicy) or by tag (ImageTagMirrorSet). */
  readonly pulls: 'digest' | 'tag';
  /** A host, a repository, a prefix of a repository up to a slash, or `*.` and a domain for the hosts below it. */
  readonly source: string;
  /** Hosts or repositories that replace the source, in order of precedence. */
  readonly mirrors: readonly string[];
  /** Whether the source itself may be contacted; false for `mirrorSourcePolicy: NeverContactSource`. */
  readonly contactSource: boolean;
}

// The kinds with mirrors, by apiVersion and kind, and the field of the spec that lists the mirrors.
const kinds: Readonly<Record<string, { pulls: MirrorRule['pulls']; field: string }>> = {
  'config.openshift.io/v1 ImageDigestMirrorSet': { pulls: 'digest', field: 'imageDigestMirrors' },
  'config.openshift.io/v1 ImageTagMirrorSet': { pulls: 'tag', field: 'imageTagMirrors' },
  'operator.openshift.io/v1alpha1 ImageContentSourcePolicy': { pulls: 'digest', field: 'repositoryDigestMirrors' },
};

const place = /^[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]{1,5})?(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/;
const wildcard = /^\*(?:\.[a-zA-Z0-9-]+)+$/;

/** The mirrors of a cluster, or of the objects in a file. */
export class MirrorSets {
  readonly #rules: readonly MirrorRule[];

  constructor(rules: readonly MirrorRule[] = []) {
    this.#rules = rules;
  }

  /**
   * Returns the locations of an image in order: the mirrors of its longest source, then the image itself unless its
   * source must not be contacted (containers-registries.conf(5)). Mirrors for digests apply to an image with a digest,
   * and mirrors for tags to an image with only a tag. A node has one entry for each source, so `NeverContactSource` in a
   * set of either kind applies to all pulls. Returns none if the source must not be contacted and has no mirror.
   */
  locationsOf(reference: Reference): Reference[] {
    const pulls = reference.digest === undefined ? 'tag' : 'digest';
    const name = `${reference.registry}/${reference.repository}`;
    const matching = this.#rules.filter(({ source }) => matchedBy(source, name) !== undefined);
    const rules = keepLongest(matching.filter((rule) => rule.pulls === pulls));
    const names = new Set<string>();
    for (const { source, mirrors } of rules) {
      for (const mirror of mirrors) names.add(mirror + name.slice(matchedBy(source, name)));
    }
    if ([...rules, ...keepLongest(matching)].every(({ contactSource }) => contactSource)) names.add(name);
    // A mirror that is only a host cannot replace a complete repository.
    return [...names].filter((location) => location.includes('/')).map((location) => relocate(reference, location));
  }

  /** Returns the repositories whose mirrors have the repository of an image, with the digest or tag of the image. */
  originalsOf(reference: Reference): Reference[] {
    const name = `${reference.registry}/${reference.repository}`;
    const names = this.#rules.flatMap(({ source, mirrors }) =>
      mirrors.flatMap((mirror) => {
        const length = source.startsWith('*.') ? undefined : matchedBy(mirror, name);
        return length === undefined ? [] : [source + name.slice(length)];
      }),
    );
    return [...new Set(names)].filter((each) => each.includes('/')).map((each) => relocate(reference, each));
  }
}

/** Returns the rules of the longest source, which has precedence. */
function keepLongest(rules: readonly MirrorRule[]): MirrorRule[] {
  const longest = Math.max(...rules.map(({ source }) => source.length));
  return rules.filter(({ source }) => source.length === longest);
}

/** The largest file: some thousand mirrors. A character has one byte or more. */
const limits = { length: 4 * 1024 * 1024, tokens: 200_000 };

/**
 * Reads ImageDigestMirrorSet, ImageTagMirrorSet and ImageContentSourcePolicy objects, and lists of them, from a YAML
 * or JSON file with one or more documents. Throws `not-readable`, and `invalid-file` with the document and the
 * problem.
 */
export async function readMirrorSets(file: string): Promise<MirrorSets> {
  let text: string;
  try {
    text = (await readSmallFile(file, limits.length)).toString();
  } catch (cause) {
    throw new PluginError('not-readable', `the file of mirror sets cannot be read: ${messageOf(cause)}`, {
      cause,
      settings: ['idmsFile'],
    });
  }
  const rules: MirrorRule[] = [];
  for (const [index, value] of readValues(text, file).entries()) {
    if (value !== null && value !== undefined) rules.push(...rulesOf(value, `${file}, document ${index + 1}`));
  }
  if (rules.length === 0) throw invalid(file, 'there are no mirrors in it');
  return new MirrorSets(rules);
}

function readValues(text: string, file: string): unknown[] {
  try {
    return readDocuments(text, limits, true).values;
  } catch (cause) {
    throw invalid(file, `it is not YAML: ${messageOf(cause)}`, cause);
  }
}

function rulesOf(value: unknown, where: string): MirrorRule[] {
  const object = asObject(value, where, 'it');
  const { apiVersion, kind, items } = object;
  if (typeof kind !== 'string') throw invalid(where, 'it has no kind');
  if (Array.isArray(items) && kind.endsWith('List')) {
    return items.flatMap((item, index) => rulesOf(item, `${where}, item ${index + 1}`));
  }
  const type = typeof apiVersion === 'string' ? `${apiVersion} ${kind}` : kind;
  const mirrorKind = Object.hasOwn(kinds, type) ? kinds[type] : undefined;
  if (!mirrorKind) throw invalid(where, `it is ${type}, none of ${Object.keys(kinds).join(', ')}`);
  const entries = asObject(object['spec'] ?? {}, where, 'spec')[mirrorKind.field] ?? [];
  if (!Array.isArray(entries)) throw invalid(where, `spec.${mirrorKind.field} is not a list`);
  return entries.map((entry, index) => ruleOf(entry, mirrorKind.pulls, where, `spec.${mirrorKind.field}[${index}]`));
}

function ruleOf(value: unknown, pulls: MirrorRule['pulls'], where: string, path: string): MirrorRule {
  const { source, mirrors = [], mirrorSourcePolicy: policy = 'AllowContactingSource' } = asObject(value, where, path);
  if (typeof source !== 'string' || !(place.test(source) || wildcard.test(source))) {
    throw invalid(where, `${path}.source is not a host, a repository or *.domain`);
  }
  const wrong = Array.isArray(mirrors) ? mirrors.findIndex((mirror) => !place.test(String(mirror))) : 0;
  if (!Array.isArray(mirrors) || wrong >= 0) {
    throw invalid(where, `${path}.mirrors[${wrong}] is not a host or a repository`);
  }
  if (policy !== 'AllowContactingSource' && policy !== 'NeverContactSource') {
    throw invalid(where, `${path}.mirrorSourcePolicy is neither AllowContactingSource nor NeverContactSource`);
  }
  return { pulls, source, mirrors: mirrors.map(String), contactSource: policy !== 'NeverContactSource' };
}

/**
 * Returns the length of the part of an image name that a source matches: a host, a part of its repositories, or all
 * hosts of a domain (`*.example.com`). Undefined if it does not match.
 */
export function matchedBy(source: string, name: string): number | undefined {
  if (!source.startsWith('*.')) return name === source || name.startsWith(`${source}/`) ? source.length : undefined;
  const [host = ''] = name.split('/', 1);
  return host.endsWith(source.slice(1)) ? host.length : undefined;
}

function relocate(reference: Reference, name: string): Reference {
  const slash = name.indexOf('/');
  return { ...reference, registry: name.slice(0, slash), repository: name.slice(slash + 1) };
}

function asObject(value: unknown, where: string, path: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw invalid(where, `${path} is not an object`);
}

function invalid(where: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-file', `${where}: ${why}`, {
    hint: 'Give a file with ImageDigestMirrorSet, ImageTagMirrorSet or ImageContentSourcePolicy objects.',
    cause,
  });
}
