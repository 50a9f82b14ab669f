import type { ReleaseSourceRequest } from '#bundle/create';
import type { Cluster } from '#cluster/client';
import type { MirrorSetKind } from '#config/mirrorSets';
import type { RegistryAccess } from '#content/registry';
import { isPluginError, PluginError } from '#errors';
import type { ChannelRange } from '#release/graph';
import type { TrustRequest } from '#release/load';
import type { Destination } from './destination.ts';

/** The releases to mirror in one run. */
export interface ReleaseChoice {
  /** Names of releases, in the forms of `ReleaseSearch.release`. */
  readonly releases: readonly string[];
  /** The versions at both ends of a path of updates, instead of names. */
  readonly path?: { readonly from: string; readonly to: string };
  /** Ranges of channels, instead of names; none for names. */
  readonly ranges?: readonly ChannelRange[];
}

/** A release by its name, and by its version in a bundle of several releases. */
export type NamedRelease = Pick<ReleaseSearch, 'release' | 'bundledVersion'>;

/** The release to mirror, and where to find it. */
export interface ReleaseSearch extends Omit<ReleaseSourceRequest, 'resolveVersion'> {
  /** The URL of the only update graph to ask for a version. */
  readonly graphUrl?: string;
}

/** The release to mirror, the destination, and the configuration. Each step takes the fields that it needs. */
export interface MirroringRequest extends ReleaseSearch {
  /** Names of images to mirror in addition to those of the release. */
  readonly additionalImages: readonly string[];
  /** The destination of the images; undefined if only the configuration or an image stream is requested. */
  readonly destination?: Destination;
  readonly skipReleaseImage: boolean;
  readonly verifyExisting: boolean;
  /** The number of parallel transfers. */
  readonly concurrency: number;
  /** The image stream of the cluster that imports the images. */
  readonly imageStream?: string;
  /** Whether the cluster may use the registry without a trusted certificate. */
  readonly insecure: boolean;
  readonly configFolder?: string;
  /** The folder that the user named for it: itself or a parent. Links below it are not followed for writing. */
  readonly configRoot?: string;
  /** The folder for signature files with the names of `oc`. */
  readonly signatureFolder?: string;
  /** The kind of mirror set; undefined for none. */
  readonly mirrorSet?: MirrorSetKind;
  /** The archive of graph data: a path or URL. */
  readonly graphData?: string;
  /** The PEM file with the CA of the registry. */
  readonly certificateAuthority?: string;
  /** The objects to apply to the cluster. */
  readonly apply: 'nothing' | 'signatures' | 'configuration';
  /** Replace objects of the cluster that have other content. */
  readonly overwrite: boolean;
  readonly dryRun?: 'client' | 'server';
  readonly trust: Omit<TrustRequest, 'known' | 'fetchFile'>;
}

/** How a mirror run reaches registries and the cluster. */
export interface MirroringAccess {
  readonly registries: RegistryAccess;
  /** Connects to the cluster. `requestTimeout` applies if the user gave none. */
  readonly openCluster: (requestTimeout?: string) => Promise<Cluster>;
}

/** Runs `work`, and adds to an interruption the hint that the next run resumes. */
export async function withResumeHint<R>(work: () => Promise<R>): Promise<R> {
  try {
    return await work();
  } catch (error) {
    if (!isPluginError(error, 'interrupted') || error.hint !== undefined) throw error;
    const hint = 'Run the same command again: it skips what is done.';
    throw new PluginError('interrupted', error.lines, { hint, cause: error.cause });
  }
}
