import { RequestLimiter } from '#content/http';
import {
  attachmentTag,
  isIndex,
  sumSizes,
  type Descriptor,
  type Manifest,
  type Digest,
  type Reference,
} from '#content/oci';
import { type StoredManifests, readContent, readImageManifest, type ContentSource } from '#content/store';
import { checkInterrupted, type Context } from '#context';
import { ignoring, PluginError, nameSome } from '#errors';
import { isEnforcedByDefault, policiesFor, type ImagePolicy } from './imagePolicy.ts';
import { payloadLimit, payloadType, findSignatureFault, type SignedImage } from './sigstoreSignature.ts';

/** The result of a policy for an image. */
interface PolicyResult {
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
export async function evaluateImage(
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

/** An image of a release: the name of its component, and the reference by which a cluster pulls it. */
export interface NamedImage {
  readonly name: string;
  readonly reference: Reference & { readonly digest: Digest };
}

/** Reads the images and attachments to judge; undefined for missing content. */
export interface ImageReader {
  /** Reads a manifest list; undefined for a single image too. */
  readList(image: NamedImage): Promise<Manifest | undefined>;
  readAttachment(image: NamedImage, tag: string): Promise<Manifest | undefined>;
  /** Reads a layer, whose size is within the limit; undefined for a layer that an older delta bundle leaves out. */
  readPayload(image: NamedImage, descriptor: Descriptor): Promise<Buffer | undefined>;
}

/** The result of a policy for a named image. A manifest list has a result for each of its images. */
export interface NamedResult extends PolicyResult {
  readonly name: string;
}

/**
 * The largest number of signatures of one image, and the largest size of their payloads in bytes. Checking a signature
 * takes a fraction of a millisecond.
 */
const signatureLimit = 1000;
const payloadsLimit = 16 * 1024 * 1024;

/** The number of images that are judged in parallel. Each may have a payload of 4 MiB in memory. */
const concurrency = 16;

/**
 * Checks images against the policies of a payload that clusters enforce by default. Checks each image in a manifest
 * list, because a node pulls one of them. Images without a policy have no result. An attachment above
 * the limits is rejected. Throws the errors of the reader.
 */
export async function checkReleaseImages(
  images: readonly NamedImage[],
  policies: readonly ImagePolicy[],
  reader: ImageReader,
  signal: AbortSignal,
): Promise<NamedResult[]> {
  const enforced = policies.filter((policy) => policy.namespace === undefined && isEnforcedByDefault(policy));
  const limiter = new RequestLimiter(concurrency);
  const results = await Promise.all(
    images.map(async (image) => {
      const covering = policiesFor(image.reference, enforced);
      if (covering.length === 0) return [];
      const digests = await listInstances(image, reader);
      const judged = digests.map(async (digest) => {
        const release = await limiter.take('plain', signal);
        try {
          checkInterrupted(signal);
          return await evaluateInstance(image, digest, covering, reader);
        } finally {
          release();
        }
      });
      return (await Promise.all(judged)).flat();
    }),
  );
  return results.flat();
}

async function evaluateInstance(
  image: NamedImage,
  digest: Digest,
  policies: readonly ImagePolicy[],
  reader: ImageReader,
): Promise<NamedResult[]> {
  const attachment = await reader.readAttachment(image, attachmentTag(digest));
  const layers = (attachment?.layers ?? []).filter(({ mediaType }) => mediaType === payloadType);
  const excess = findExcess(layers);
  const subject = { reference: image.reference, digest };
  const results: NamedResult[] = [];
  for (const policy of policies) {
    const result: PolicyResult =
      excess === undefined
        ? await evaluateImage(subject, policy, layers, (layer) => reader.readPayload(image, layer))
        : { image: subject, policy, outcome: 'rejected', reasons: [excess] };
    results.push({ name: image.name, ...result });
  }
  return results;
}

/**
 * Checks that clusters would not refuse an image. Throws `unsigned` or `untrusted` with the images; only warns if
 * unsigned releases are allowed.
 */
export function requireVerified(
  results: readonly NamedResult[],
  where: string,
  allowUnsigned: boolean,
  { log }: Pick<Context, 'log'>,
): void {
  const error = findRefused(results, where);
  if (error && !allowUnsigned) throw error;
  const unchecked = results.filter(({ outcome }) => outcome === 'unchecked');
  for (const [{ name }, own] of Map.groupBy(unchecked, ({ policy }) => policy)) {
    const reasons = [...new Set(own.flatMap((each) => each.reasons))].join('; ');
    const message = `${where}: the image policy ${name} of the release is not checked for ${own.length} images: ${reasons}`;
    log('warn', message);
  }
  if (error) log('warn', `${error.message}; continuing because unsigned releases are allowed`);
}

/**
 * Returns an error, `unsigned` or `untrusted`, that names the images that clusters would refuse; undefined if there are
 * none.
 */
function findRefused(results: readonly NamedResult[], where: string): PluginError | undefined {
  const refused = results.filter(({ outcome }) => outcome === 'missing' || outcome === 'rejected');
  const [first] = refused;
  if (!first) return undefined;
  const names = [...new Set(refused.map(({ name }) => name))];
  const code = refused.every(({ outcome }) => outcome === 'missing') ? 'unsigned' : 'untrusted';
  const reasons = [...new Set(refused.flatMap((each) => each.reasons))].slice(0, 3).join('; ');
  const count = names.length === 1 ? '1 image has' : `${names.length} images have`;
  const isUsable = first.policy.trust.kind !== 'invalid';
  return new PluginError(code, `${where}: ${count} no valid sigstore signature: ${nameSome(names, 5)}`, {
    hint:
      `Clusters refuse such images by the policy ${first.policy.name} of the release` +
      (isUsable
        ? '. Get the release from a repository that has its signatures, under the tags sha256-<digest>.sig.'
        : ', because its root of trust cannot be used. Ask the publisher of the release for one that can be checked.'),
    cause: new Error(reasons),
  });
}

/** Returns a reader of images and attachments in stores. Some of them may be missing. */
export function readerOf(sourceOf: (image: NamedImage) => ContentSource): ImageReader {
  return {
    readList: (image) =>
      ifPresent(async () => {
        const descriptor = await sourceOf(image).resolve(image.reference.digest);
        return isIndex(descriptor) ? readImageManifest(sourceOf(image), descriptor) : undefined;
      }),
    readAttachment: (image, tag) =>
      ifPresent(async () => readImageManifest(sourceOf(image), await sourceOf(image).resolve(tag))),
    readPayload: (image, descriptor) => ifPresent(() => readContent(sourceOf(image), descriptor, descriptor.size)),
  };
}

/** Returns a reader of manifests that were read before. It finds attachments by their tags. */
export function finderIn(
  manifests: StoredManifests,
  digestOfTag: (tag: string) => Digest | undefined,
): Pick<ImageReader, 'readList' | 'readAttachment'> {
  const find = (digest: Digest | undefined): Promise<Manifest | undefined> =>
    Promise.resolve(digest && manifests.get(digest)?.manifest);
  return {
    readList: ({ reference }) => find(reference.digest),
    readAttachment: (_image, tag) => find(digestOfTag(tag)),
  };
}

async function ifPresent<Value>(read: () => Promise<Value>): Promise<Value | undefined> {
  return await read().catch(ignoring('not-found'));
}

async function listInstances(image: NamedImage, reader: ImageReader): Promise<readonly Digest[]> {
  const list = await reader.readList(image);
  const instances = (list?.manifests ?? []).filter(({ platform }) => platform?.os !== 'unknown');
  return instances.length > 0 ? instances.map(({ digest }) => digest) : [image.reference.digest];
}

/** Says in which way signatures exceed the limits, before any of them is read; undefined if they do not. */
function findExcess(layers: readonly Descriptor[]): string | undefined {
  const large = layers.find(({ size }) => size > payloadLimit);
  const total = sumSizes(layers);
  if (large) return `its attachment has a signature of ${large.size} bytes`;
  return layers.length > signatureLimit || total > payloadsLimit
    ? `its attachment has ${layers.length} signatures of ${total} bytes`
    : undefined;
}
