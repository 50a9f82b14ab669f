import { sumSizes, parseReference } from '#content/oci';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { readOSImageStreams, type OSImageStreams, type PayloadFiles } from '#release/payload';
import { readPayloadManifests } from '#release/release';
import { parseArchitecture, type Architecture } from '#release/version';
import { type BundleBase, splitReleases } from '../metadata/metadata.ts';
import type { Bundle } from '../open/bundle.ts';
import type { VerifyTrust } from '../open/signatureCheck.ts';
import { checkSigned } from '../open/signedBundle.ts';

/** The requirements of an update with a bundle. */
export interface UpdatePlan {
  readonly path: string;
  readonly version: string;
  readonly arch: Architecture;
  readonly previous: readonly string[];
  /** The pullspecs of all images, by digest. */
  readonly images: readonly string[];
  /** The pullspecs of the components by digest, by their names. */
  readonly components: Readonly<Record<string, string>>;
  /** The size of all blobs, in bytes. */
  readonly size: number;
  /** What the bundle leaves out. */
  readonly base?: BundleBase;
  /** The release image by digest, and the files of its manifests. */
  readonly release: string;
  readonly manifests: PayloadFiles;
  /** The operating system streams of the release; undefined if it needs none described in the cluster. */
  readonly streams?: OSImageStreams;
  /** The reason why the release in the bundle is not trusted; undefined if it is trusted. */
  readonly distrust: PluginError | undefined;
  /** The plans for the earlier releases of a bundle with several, in the order of the updates. */
  readonly earlier?: readonly UpdatePlan[];
}

/**
 * Reads the requirements of an update from the payload in a bundle, without reading layers of other images. Records a
 * missing signature in the plan. With several releases, returns the plan for the last one. Throws the errors of opening
 * a release.
 */
export async function planUpdate(bundle: Bundle, trust: VerifyTrust, context: Context): Promise<UpdatePlan> {
  const { content, path } = bundle;
  const distrust = await checkSigned(bundle, trust, context).then(
    () => undefined,
    (error: unknown) => {
      if (isPluginError(error, 'unsigned') || isPluginError(error, 'untrusted')) return error;
      throw error;
    },
  );
  const { base } = bundle.metadata;
  const plans: UpdatePlan[] = [];
  for (const { version, arch, previous, images, components, blobs, release } of splitReleases(bundle.metadata)) {
    const { digest = '' } = parseReference(release);
    const manifests = await readPayloadManifests(content, await content.resolve(digest), context);
    const size = sumSizes(blobs);
    const streams = await readOSImageStreams(manifests, version, () => content, context);
    const facts = { version, arch: parseArchitecture(arch), previous, images, components, size, base, release };
    plans.push({ path, ...facts, manifests, streams, distrust });
  }
  const last = plans.pop();
  if (!last) throw new PluginError('internal', `${path} has no release`);
  return plans.length === 0 ? last : { ...last, earlier: plans };
}
