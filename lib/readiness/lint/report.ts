import { basename, extname } from 'node:path/posix';
import type { Subject } from '../../cluster/finding.ts';
import { describeContainers, type Container } from './container.ts';
import type { Budget } from './documents.ts';
import { templateWord } from './image.ts';
import type { LintFinding } from './lintFinding.ts';
import type { ManifestFilter } from '../../release/manifestFilter.ts';
import type { ReleaseImages } from './releaseImages.ts';
import { problemOf, type Rule } from './rule.ts';

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

/** Adds a finding for each part of an item that breaks one of the rules. `actor` is the subject of the message if there is no container. */
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
        ...{ rule: id, severity, object: place.object, file: place.file, line: 1 },
        component: componentOf(place, release?.componentOf(container?.image ?? text)),
        field: oneLine(placeBelow(place, field).field),
        value,
        message: container ? describeContainers([container], problem) : `${actor} ${problem}`,
        ...{ why, remedy },
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

/** Returns the place of a field below another place. */
export function placeBelow(place: ManifestPlace, field: string): ManifestPlace {
  if (field === '') return place;
  const separator = place.field === '' || field.startsWith('[') ? '' : place.field.endsWith('>') ? ' ' : '.';
  return { ...place, field: `${place.field}${separator}${field}`, depth: place.depth + 1 };
}
