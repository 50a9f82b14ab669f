/** Why a signature is refused, as far as advice depends on it. */
export type RefusalKind = 'unsupported' | 'expired' | 'other';

/** A signature that is refused. The message is the rest of a sentence that begins with “the signature”. */
export class SignatureRefusal extends Error {
  readonly kind: RefusalKind;

  constructor(message: string, kind: RefusalKind = 'other', cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.kind = kind;
  }
}

/** Refuses a signature by an algorithm that clusters do not know, by its name. */
export function refuseAlgorithm(name: string): SignatureRefusal {
  return new SignatureRefusal(`uses an unsupported algorithm, which clusters cannot verify: ${name}`, 'unsupported');
}
