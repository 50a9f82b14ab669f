/**
 * The kind of a problem. `inconsistent`: two parts of a bundle contradict each other. The last two are about the
 * release signature.
 */
export type ProblemKind =
  | 'missing'
  | 'truncated'
  | 'corrupt'
  | 'unexpected'
  | 'inconsistent'
  | 'unsigned'
  | 'untrusted';

/** The part of a bundle that a problem is about. `bundle` is the whole bundle. */
export type ProblemSubject = 'bundle' | 'volume' | 'metadata' | 'signature' | 'manifest' | 'blob' | 'tag' | 'file';

/** A problem of a bundle. */
export interface Problem {
  readonly kind: ProblemKind;
  readonly subject: ProblemSubject;
  /** A digest, or a path in the bundle. */
  readonly what: string;
  /** The images that need the content. */
  readonly images: readonly string[];
  readonly message: string;
  /** The hint, if the problem has one of its own. */
  readonly hint?: string;
}

/** Returns a problem whose message is safe for a terminal, even if it quotes the bundle. */
export function describeProblem(
  kind: ProblemKind,
  subject: ProblemSubject,
  what: string,
  message: string,
  hint?: string,
): Problem {
  return { kind, subject, what: clean(what), images: [], message: clean(message), hint };
}

function clean(text: string): string {
  return text.replace(/\p{Cc}/gu, '\u{fffd}');
}
