/** What is wrong: `inconsistent` is for two things in a bundle that contradict each other, the last two are about the release's signature. */
export type ProblemKind =
  'missing' | 'truncated' | 'corrupt' | 'unexpected' | 'inconsistent' | 'unsigned' | 'untrusted';

/** What a problem is with; `bundle` is the whole of it. */
export type ProblemSubject = 'bundle' | 'volume' | 'metadata' | 'signature' | 'manifest' | 'blob' | 'tag' | 'file';

/** Something that is wrong with a bundle. */
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

/** Makes a problem whose words are safe for a terminal, whatever the bundle has for names. */
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
