import type { ReleaseRequest, TrustRequest } from '../../release/load.ts';
import type { BaseRequest } from './base.ts';

/** The content of a new bundle, and its folder. */
export interface CreateRequest {
  readonly release: ReleaseRequest;
  /** Pullspecs of images to add to those of the release. */
  readonly extraImages: readonly string[];
  /** What the blobs are left out of that it has already: the bundle is a delta then. */
  readonly base?: BaseRequest | undefined;
  /** An existing or new folder. */
  readonly output: string;
  readonly trust: Omit<TrustRequest, 'known' | 'fetchFile'>;
  /** How large a file may be, in bytes: a larger bundle is split into volumes. */
  readonly volumeSize?: number | undefined;
  /** Say what would be done, and write nothing. */
  readonly dryRun: boolean;
  /** Check every byte of a finished bundle before believing that there is nothing to do. */
  readonly verifyExisting: boolean;
  /** The name and version of this program, for the metadata. */
  readonly tool: string;
}
