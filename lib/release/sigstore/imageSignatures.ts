import type { ImagePolicy } from './imagePolicy.ts';
import { findSignatureFault, payloadType, type SignatureLayer, type SignedImage } from './sigstoreSignature.ts';

/** The result of a policy for an image. */
export interface PolicyResult {
  readonly image: SignedImage;
  readonly policy: ImagePolicy;
  /** `unchecked`: the policy requires a check that is not possible offline. */
  readonly outcome: 'verified' | 'missing' | 'rejected' | 'unchecked';
  /** Why the image is not verified: a sentence for each kind of fault. */
  readonly reasons: readonly string[];
}

/** Judges an image by a policy that covers it; of several signatures one has to hold. `layers` are those of its attachment, if it has one. */
export function judgeImage(image: SignedImage, policy: ImagePolicy, layers: readonly SignatureLayer[]): PolicyResult {
  const { trust, identity } = policy;
  if (trust.kind === 'unsupported') return { image, policy, outcome: 'unchecked', reasons: [trust.reason] };
  const signatures = layers.filter(({ descriptor }) => descriptor.mediaType === payloadType);
  const reasons = new Set<string>();
  for (const layer of signatures) {
    const fault = findSignatureFault(layer, image, trust.key.key, identity);
    if (fault === undefined) return { image, policy, outcome: 'verified', reasons: [] };
    reasons.add(fault);
  }
  if (reasons.size === 0) return { image, policy, outcome: 'missing', reasons: ['it has no sigstore signature'] };
  return { image, policy, outcome: 'rejected', reasons: [...reasons] };
}
