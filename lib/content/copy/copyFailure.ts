import { hintOf, isPluginError, messageOf, PluginError, type ErrorCode } from '../../errors.ts';
import { collectFailures, nameSome } from '../../failures.ts';
import type { Digest } from '../oci/digest.ts';

const namesShown = 5;

/** One failure of a copy: its side, store and content. */
export class CopyFailure extends Error {
  readonly side: 'source' | 'destination';
  readonly store: string;
  readonly digest: Digest;

  constructor(side: 'source' | 'destination', store: string, digest: Digest, cause: unknown) {
    super(messageOf(cause), { cause });
    this.side = side;
    this.store = store;
    this.digest = digest;
  }

  /** The code of the cause; `internal` for an error that is not a PluginError. */
  get code(): ErrorCode {
    return isPluginError(this.cause) ? this.cause.code : 'internal';
  }

  /** Whether the copy must stop: the disk is full, or the destination refuses the user or the content, or is unreachable. */
  get isFatal(): boolean {
    if (this.code === 'disk-full' || this.code === 'not-writable') return true;
    const codes: ErrorCode[] = ['unauthorized', 'denied', 'unreachable', 'too-large', 'unsupported'];
    return this.side === 'destination' && codes.includes(this.code);
  }

  /** Whether a registry refused a manifest because content of it is missing. */
  get isBlobUnknown(): boolean {
    for (let error: unknown = this.cause; error instanceof Error; error = error.cause) {
      if (/MANIFEST_(?:BLOB_)?UNKNOWN|blob unknown/i.test(error.message)) return true;
    }
    return false;
  }
}

/**
 * Combines all failures and their images into one error: the failure itself if there is only one, else `partial`. See
 * collectFailures.
 */
export function describeFailures(failures: ReadonlyMap<CopyFailure, readonly string[]>, total: number): PluginError {
  const errors = [...failures].map(([failure, images]) => {
    const { code, cause } = failure;
    return new PluginError(code, describe(failure, images), { hint: hintOf(cause), cause });
  });
  const failed = new Set([...failures.values()].flat()).size;
  const title = `${failed} of ${total} images could not be copied`;
  const hint = 'Run the same command again: it skips the content that was copied.';
  return collectFailures(errors, { title, hint });
}

function describe({ side, store, digest, message }: CopyFailure, images: readonly string[]): string {
  const names = nameSome(images, namesShown);
  const where = message.includes(store) ? side : `${side} ${store}`;
  const what = message.includes(digest) ? message : `${digest}: ${message}`;
  return `${names === '' ? '' : `${names}: `}${where}: ${what}`;
}
