import type { Descriptor } from '../../content/oci/descriptor.ts';
import type { ImagePolicy } from './imagePolicy.ts';
import { findSignatureFault, payloadType, type SignedImage } from './sigstoreSignature.ts';

/** The result of a policy for an image. */
export interface PolicyResult {
  readonly image: SignedImage;
  readonly policy: ImagePolicy;
  /** `unchecked`: the signature is in the base of a delta bundle. */
  readonly outcome: 'verified' | 'missing' | 'rejected' | 'unchecked';
  /** The reasons why the image is not verified: a sentence for each kind of fault. */
  readonly reasons: readonly string[];
}

/**
 * Judges an image by a policy that covers it. `layers` are the layers of its attachment, if it has one. Reads their
 * payloads one by one, until a signature is valid. `readPayload` returns undefined for a payload that an older delta
 * bundle leaves out.
 */
export async function judgeImage(
  image: SignedImage,
  policy: ImagePolicy,
  layers: readonly Descriptor[],
  readPayload: (layer: Descriptor) => Promise<Buffer | undefined>,
): Promise<PolicyResult> {
  const { trust, identity } = policy;
  if (trust.kind === 'invalid') return { image, policy, outcome: 'rejected', reasons: [trust.reason] };
  const now = Date.now();
  const reasons = new Set<string>();
  let isPartial = false;
  for (const descriptor of layers.filter(({ mediaType }) => mediaType === payloadType)) {
    const payload = await readPayload(descriptor);
    const fault = payload && (await findSignatureFault({ descriptor, payload }, image, { trust, identity }, now));
    if (payload && fault === undefined) return { image, policy, outcome: 'verified', reasons: [] };
    if (fault === undefined) isPartial = true;
    else reasons.add(fault);
  }
  if (isPartial) {
    return { image, policy, outcome: 'unchecked', reasons: ['its signature is in the base of the bundle'] };
  }
  if (reasons.size === 0) return { image, policy, outcome: 'missing', reasons: ['it has no sigstore signature'] };
  return { image, policy, outcome: 'rejected', reasons: [...reasons] };
}
