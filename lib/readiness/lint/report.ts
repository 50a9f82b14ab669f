import { basename, extname } from 'node:path/posix';
import { type Subject, formatSubject, type Severity, type Check } from '#cluster/finding';
import { readDocuments } from '#content/files';
import { parseJson } from '#content/oci';
import type { ManifestFilter } from '#release/payload';
import { describeContainers, type Container } from './container.ts';
import { templateWord, type ReleaseImages } from './image.ts';

/** The state of reading the manifests of one release or folder. */
export interface LintState {
  readonly release: ReleaseImages | undefined;
  readonly budget: Budget & { values: number };
  readonly findings: LintFinding[];
  /** Values that aliases share, or lead back to, are read once. */
  readonly seen: WeakSet<object>;
  /** Chooses the objects of a release that a cluster has. */
  readonly filter: ManifestFilter | undefined;
  /** The objects, parts of machine configurations, scripts and units that were checked. */
  objects: number;
  /** The objects that a cluster does not have. */
  excluded: number;
}

/** Where something is: in a file, in an object, below a field. */
export interface ManifestPlace {
  readonly file: string;
  readonly object: Subject;
  readonly field: string;
  /** The name of the text that is read: a key, a path or a unit. */
  readonly name: string;
  /** Texts are scripts, units and manifests; else they are the words of an API. */
  readonly hasTexts: boolean;
  /** Whether the object is of an operator’s own kind, whose fields nothing here knows. */
  readonly isCustom?: boolean;
  readonly depth: number;
}

/**
 * Adds a finding for each part of an item that breaks one of the rules. `actor` is the subject of the message if there
 * is no container.
 */
export function applyRules<Item>(
  rules: readonly Rule<Item>[],
  item: Item,
  actor: string,
  place: ManifestPlace,
  { release, findings }: LintState,
  container?: Container,
): void {
  for (const rule of rules) {
    const { id, severity, why, remedy } = rule;
    // A manifest may have any text in any place.
    for (const { field, value: text } of rule.find(item, release)) {
      const value = oneLine(text);
      const problem = problemOf(rule, value);
      findings.push({
        rule: id,
        severity,
        object: place.object,
        file: place.file,
        line: 1,
        component: componentOf(place, release?.componentOf(container?.image ?? text)),
        field: oneLine(placeBelow(place, field).field),
        value,
        message: container ? describeContainers([container], problem) : `${actor} ${problem}`,
        why,
        remedy,
      });
    }
  }
}

/** The files of a release are named `0000_50_<component>_…`. */
function componentOf({ file, object }: ManifestPlace, component: string | undefined): string {
  const [, named] = /(?:^|\/)\d+_(?:\d+_)?([a-z][a-z0-9.-]*)_/.exec(file) ?? [];
  const own = object.kind === 'File' ? basename(file, extname(file)) : object.name;
  return component ?? named ?? object.namespace ?? own;
}

/** Shows expressions of templates, and puts a text of a manifest into one line of at most 500 characters. */
export function oneLine(text: string): string {
  return text.replaceAll(templateWord, '{{…}}').replace(/\s+/g, ' ').slice(0, 500);
}

/** Returns the place of a field below another place, one level deeper; the same place for an empty field. */
export function placeBelow(place: ManifestPlace, field: string): ManifestPlace {
  if (field === '') return place;
  const separator = place.field === '' || field.startsWith('[') ? '' : place.field.endsWith('>') ? ' ' : '.';
  return { ...place, field: `${place.field}${separator}${field}`, depth: place.depth + 1 };
}

/** How much YAML is still parsed. A YAML parser needs a second for 60,000 tokens. */
interface Budget {
  tokens: number;
  /** The number of documents that were left out, because their kind runs nothing. */
  inert: number;
}

/** Of one document. The largest YAML of a release has 100,000 tokens; lists of whole clusters are better as JSON. */
const limits = { length: 16 * 1024 * 1024, tokens: 250_000 };

/** These run nothing, and are most of the bytes of a release. */
const inert =
  /^kind: *["']?(?:CustomResourceDefinition|(?:Cluster)?Role(?:Binding)?|PrometheusRule|ServiceMonitor|Namespace|Service|ServiceAccount|Console\w+|FlowSchema|NetworkPolicy|PriorityClass|SecurityContextConstraints|NetworkAttachmentDefinition)["']?\s*$/;

/**
 * Reads the documents of a YAML or JSON text that may be untrusted. Expressions of templates become one word. Documents
 * of kinds that run nothing are left out. Throws RangeError and ReferenceError for a text above the limits, and
 * SyntaxError.
 */
export function readManifest(text: string, budget: Budget): unknown[] {
  if (text.length > limits.length) throw new RangeError(`it has more than ${limits.length} characters`);
  if (/^\s*[{[]/.test(text) && !text.includes('{{')) {
    try {
      return [parseJson(text)];
    } catch (error) {
      if (text.length > 1024 * 1024) throw error;
    }
  }
  const documents = text.split(/^---(?=\s|$)/m).filter((document) => /\S/.test(document));
  const read = documents.filter((document) => !isInert(document));
  budget.inert += documents.length - read.length;
  return read.flatMap((document) => readDocument(document, budget));
}

function readDocument(text: string, budget: Budget): unknown[] {
  // Some scripts have the like of a template in them, so the text itself is the last that is tried.
  const forms = new Set([fillTemplate(text), fillTemplate(text.replace(control, '')), text]);
  let failure: unknown;
  for (const form of forms) {
    try {
      return parse(form, budget);
    } catch (error) {
      if (error instanceof RangeError) throw error;
      failure ??= error;
    }
  }
  throw failure;
}

function parse(text: string, budget: Budget): unknown[] {
  const { values, tokens } = readDocuments(text, { ...limits, tokens: Math.min(limits.tokens, budget.tokens) });
  budget.tokens -= tokens;
  return values;
}

/** Expressions that stand for no value, even within a line. */
const control = /\{\{-? *(?:if|else|end|range|with|define|block|template)\b[^{}]*\}\}/g;

/** Lines with nothing but expressions control the template; elsewhere an expression stands for a value. */
function fillTemplate(text: string): string {
  return text
    .replace(/^[ \t]*(?:\{\{[^{}]*\}\}[ \t]*)+$|^[ \t]*\$\{\w+\}[ \t]*$/gm, '')
    .replace(/\{\{[^{}]*\}\}/g, templateWord);
}

function isInert(document: string): boolean {
  const kinds = document.match(/^["']?kind["']?:.*$/gm) ?? [];
  return kinds.length === 1 && inert.test(kinds[0]);
}

/** A part of a manifest that needs a registry. */
export interface LintFinding {
  readonly rule: string;
  readonly severity: Severity;
  /** The component of the release, by its image or the name of the manifest. */
  readonly component: string;
  readonly object: Subject;
  /** The name of the manifest. */
  readonly file: string;
  /** The line of the field if it is found, else of the object, from 1. */
  readonly line: number;
  /** The path of the field in the object; ` > ` leads into a file that the field holds. Items of lists are named. */
  readonly field: string;
  readonly value: string;
  readonly message: string;
  readonly why: string;
  readonly remedy: string;
}

/** Returns what a finding is known by in other versions of the same manifest: digests and file names do not count. */
export function keyOfFinding({
  rule,
  object,
  field,
  value,
}: Pick<LintFinding, 'rule' | 'object' | 'field' | 'value'>): string {
  return [rule, formatSubject(object), field, withoutDigests(value)].join('\n');
}

/** Returns a text with `@sha256:…` in place of digests. */
export function withoutDigests(text: string): string {
  return text.replace(/@sha256:[0-9a-f]{64}/g, '@sha256:…');
}

/** A part of an item that breaks a rule. */
export interface Evidence {
  /** The field, relative to the item; empty for the item itself. */
  readonly field: string;
  /** What the field has, as `problem` shows it. */
  readonly value: string;
}

/** What makes an object need a registry. `Item` is what the rule looks at. */
export interface Rule<Item> {
  /** For baselines, reports and the page of the rules: never changed, never used again. */
  readonly id: string;
  readonly severity: Severity;
  /** The check of preflight that reports it. */
  readonly check: Check;
  /** What is wrong, as a predicate of the item; `%` stands for the value. */
  readonly problem: string;
  /** Why it matters without a registry. */
  readonly why: string;
  readonly remedy: string;
  /** Returns each part of an item that breaks the rule. The images of the release are undefined if they are unknown. */
  readonly find: (item: Item, release?: ReleaseImages) => readonly Evidence[];
}

/** Returns the problem of a rule with a value, such as `names an image by tag: quay.io/site/tool:1`. */
export function problemOf({ problem }: Pick<Rule<never>, 'problem'>, value: string): string {
  return problem.replace('%', () => value);
}
