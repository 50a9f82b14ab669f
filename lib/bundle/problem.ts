/**
 * The kind of a problem: `inconsistent` if two parts of a bundle contradict each other; the last two are about the
 * release signature.
 */
export type ProblemKind =
  'missing' | 'truncated' | 'corrupt' | 'unexpected' | 'inconsistent' | 'unsigned' | 'untrusted';

/** The part of a bundle that a problem is about; `bundle` is all of it. */
export type ProblemSubject = 'bundle' | 'volume' | 'metadata' | 'signature' | 'manifest' | 'blob' | 'tag' | 'file';

/** A problem of a bundle. */
export interface Problem {
  readonly kind: ProblemKind;
  readonly subject: ProblemSubject;
  /** A digest, or a path in the bundle. */
  readonly what: string;
  /** The images that need it. */
  readonly images: readonly string[];
  readonly message: string;
  /** What to do about it, where that is something of its own. */
  readonly hint?: string;
}

/** Makes a problem whose message is safe for a terminal, even if it quotes the bundle. */
export function describeProblem(
  kind: ProblemKind,
  subject: ProblemSubject,
  what: string,
  message: string,
  hint?: string,
): Problem {
  return { kind, subject, what: clean(what), images: [], message: clean(message), ...(hint !== undefined && { hint }) };
}

function clean(text: string): string {
  return text.replace(/\p{Cc}/gu, '\u{fffd}');
}
