import { basename, join } from 'node:path';
import { signatureManifests } from '../../config/releaseManifests.ts';
import type { Context } from '../../context.ts';
import type { Digest } from '../../oci/digest.ts';
import { formatReference, type Reference } from '../../oci/reference.ts';
import type { ContentSource } from '../../store/store.ts';
import { findRelease, loadRelease } from '../../release/load.ts';
import type { Architecture } from '../../release/version.ts';
import { withAdvice } from './advice.ts';
import { listArtifacts } from './artifacts.ts';
import { leaveOut, readBase } from './base.ts';
import { gatherAdditions, type Additions, type BundledCatalog } from './catalogs.ts';
import { gatherContents } from './contents.ts';
import { checkContents } from './contentsCheck.ts';
import { requireVerified, type NamedResult } from '../../release/sigstore/releaseCheck.ts';
import { checkExisting } from './existing.ts';
import { describeRelease } from '../facts.ts';
import { listImages } from '../images.ts';
import { layOutBundle, type BundleLayout } from './layout.ts';
import { sumSizes, type BundleMetadata } from '../metadata.ts';
import type { Origin } from './origin.ts';
import { checkFolder, checkOutput } from '../output.ts';
import type { CreateRequest } from './request.ts';
import { reuseBundle } from './reusedBundle.ts';
import { checkSite } from './siteCheck.ts';
import { writeBundle } from './writeBundle.ts';

/** The result of `create`. Sizes are in bytes. */
export interface CreateResult {
  readonly path: string;
  readonly outcome: 'created' | 'unchanged' | 'planned';
  readonly metadata: BundleMetadata;
  /** The digest of the whole file; undefined if nothing was written. */
  readonly digest?: Digest;
  /** The bytes that were fetched from the source; in a dry run, the bytes to fetch. */
  readonly fetched: number;
  /**
   * The sigstore signatures of the images, by the image policies of the release; undefined if the bundle is unchanged.
   */
  readonly policies?: readonly NamedResult[];
  /** The catalogs with their operators; absent for an existing bundle of a release that was given by image. */
  readonly catalogs?: readonly BundledCatalog[];
}

/**
 * Creates `<output>/upgrade-<version>-<arch>.tar` from a release, or a delta bundle `…-from-<version>.tar`, or volumes
 * `….tar.000` and so on, with `.sha256` and `.yaml` files. Checks the signature of the release before it fetches any
 * blob, and fetches each blob once, into its final place. Resumes an interrupted run, and keeps a finished bundle.
 */
export async function createBundle(request: CreateRequest, origin: Origin, context: Context): Promise<CreateResult> {
  try {
    return await create(request, origin, context);
  } catch (error) {
    throw withAdvice(error);
  }
}

async function create(request: CreateRequest, source: Origin, context: Context): Promise<CreateResult> {
  await checkFolder(request.output);
  const wanted = 'version' in request.release ? request.release : undefined;
  const found = await findRelease(request.release, (reference) => source.sourceOf(reference));
  const gatherFor = (arch: Architecture): Promise<Additions> => gatherAdditions(request, arch, source, context);
  const known = wanted && (await gatherFor(wanted.arch));
  const base = request.base && (await readBase(request.base, found.reference, source, context));
  const pathOf = ({ version, arch }: { version: string; arch: Architecture }): string =>
    join(request.output, bundleName(version, arch, base?.version));
  const findExisting = async (path: string, { images, catalogs }: Additions): Promise<CreateResult | undefined> => {
    const expected = { reference: found.reference, extraImages: images.map(({ name }) => name), base };
    const trust = { ...request.trust, fetchFile: source.fetchFile };
    const existing = await checkExisting(path, expected, request, trust, context);
    return existing && { path, outcome: 'unchanged', fetched: 0, catalogs, ...existing };
  };
  const existing = known && (await findExisting(pathOf(wanted), known));
  if (existing) return existing;
  if (wanted && !request.dryRun) await checkOutput(pathOf(wanted));

  context.log('info', `reading the release ${formatReference(found.reference)}`);
  const trust = { ...request.trust, known: source.signatures, fetchFile: source.fetchFile };
  const signed = await loadRelease(found, request.release, trust, context);
  const path = pathOf(signed.release);
  // For a release by image, the version is known only now.
  const additions = known ?? (await gatherFor(signed.release.arch));
  const late = wanted ? undefined : await findExisting(path, additions);
  if (late) return late;
  const { images: extraImages, config, catalogs, origin } = additions;
  if (request.site) checkSite(request.site, signed.release, catalogs, context);

  if (!request.dryRun) {
    await checkOutput(path);
    origin.prepare();
  }
  context.log('info', `reading the manifests of ${signed.release.images.size + 1 + extraImages.length} images`);
  const sourceOf = (reference: Reference): ContentSource => origin.sourceOf(reference);
  const gathered = await gatherContents(listImages(signed, extraImages), sourceOf, context);
  const { contents: checked, policies } = await checkContents(gathered, signed.release, origin, context);
  requireVerified(policies, formatReference(found.reference), request.trust.allowUnsigned, context);
  const { contents, left } = leaveOut(checked, base);
  const extras = extraImages.map(({ name }) => name);
  const artifacts = listArtifacts(extraImages, checked.manifests);
  const facts = {
    ...describeRelease(signed, extras, request.tool),
    ...(artifacts.length > 0 && { artifacts }),
    ...(left && { base: left }),
  };
  const { volumeSize } = request;
  const split = volumeSize === undefined ? undefined : { name: basename(path), volumeSize };
  const layout = layOutBundle(facts, contents, [...signatureManifests(signed), ...config], split);
  if (request.dryRun) return { ...plan(path, layout), policies, catalogs };
  const { metadata } = layout;
  const reused = await reuseBundle(path, contents, origin, context);
  try {
    const { digests, fetched: moved } = await writeBundle(path, layout, contents, {}, reused ?? origin, context);
    const fetched = moved - (reused?.reused ?? 0);
    return { path, outcome: 'created', metadata, digest: digests.digest, fetched, policies, catalogs };
  } finally {
    await reused?.close();
  }
}

/** Returns the file name of a bundle. `base` is the version of the base release of a delta bundle. */
export function bundleName(version: string, arch: Architecture, base?: string): string {
  return `upgrade-${version}-${arch}${base === undefined ? '' : `-from-${base}`}.tar`;
}

function plan(path: string, { metadata }: BundleLayout): CreateResult {
  return { path, outcome: 'planned', metadata, fetched: sumSizes(metadata.blobs) };
}
