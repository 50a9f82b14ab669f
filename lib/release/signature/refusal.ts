/** The kind of refusal, for the hint. */
export type RefusalKind = 'unsupported' | 'expired' | 'other';

/** A refused signature. The message is the rest of a sentence that begins with “the signature”. */
export class SignatureRefusal extends Error {
  readonly kind: RefusalKind;

  constructor(message: string, kind: RefusalKind = 'other', cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.kind = kind;
  }
}

/** Returns the refusal of an algorithm that clusters do not support. */
export function refuseAlgorithm(name: string): SignatureRefusal {
  return new SignatureRefusal(`uses an unsupported algorithm, which clusters cannot verify: ${name}`, 'unsupported');
}
