import type { UpdateRisk } from '#release/graph';
import type { ReleaseRequest, TrustRequest } from '#release/load';
import type { ReportPlace } from '../metadata/metadata.ts';
import type { BaseRequest } from './base.ts';
import type { AdditionsRequest } from './catalogs.ts';

/** The content of a new bundle, and its folder. */
export interface CreateRequest extends AdditionsRequest {
  /** The releases in the order of the updates. */
  readonly releases: readonly [ReleaseRequest, ...ReleaseRequest[]];
  /** The known risks of the updates to these releases, by version. */
  readonly risks?: ReadonlyMap<string, readonly UpdateRisk[]>;
  /** The base of a delta bundle. The bundle leaves out the blobs of its base. */
  readonly base?: BaseRequest;
  /** An existing or new folder. */
  readonly output: string;
  readonly trust: Omit<TrustRequest, 'known' | 'fetchFile'>;
  /** The largest size of a file in bytes. A larger bundle is split into volumes. */
  readonly volumeSize?: number;
  /**
   * How drives with the bundle take reports of the site; by default they take none on a drive without a file system.
   */
  readonly reports?: ReportPlace | undefined;
  /** Report what a run would do, and write nothing. */
  readonly dryRun: boolean;
  /** Check every byte of a finished bundle before skipping it. */
  readonly verifyExisting: boolean;
  /** The name and version of this program, for the metadata. */
  readonly tool: string;
}
