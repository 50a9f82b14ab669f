import { formatSubject, type Severity, type Subject } from '../../cluster/finding.ts';

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
