import type { BundleMetadata } from '../bundle/metadata.ts';
import type { ConfigManifest } from '../config/manifest.ts';
import type { Digest } from '../oci/digest.ts';

/** What the controller has to know of a bundle. */
export interface BundleFacts {
  /** Of the whole file. */
  readonly digest: Digest;
  /** Verified: from a bundle that has that digest. */
  readonly metadata: BundleMetadata;
  /** The objects in its `config` folder: signatures. */
  readonly manifests: readonly ConfigManifest[];
}

/**
 * How to control the rollout of bundles. Nodes load when `mayLoad` says so; it is the controller that decides, by the phase and,
 * for the control plane, by whose turn it is.
 */
export interface RolloutOptions {
  /** Who this is, for the Lease: the name of the node. */
  readonly identity: string;
  /** Where the Lease is. */
  readonly namespace: string;
  /** The facts of the bundle with a digest, from whoever has it and has verified it; undefined where nobody does yet. */
  readBundle(digest: Digest): Promise<BundleFacts | undefined>;
}
