import type { Check, Severity } from '#cluster/finding';
import type { ReleaseImages } from './image.ts';

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
