import { isPluginError } from '../errors.ts';
import { attachmentKinds, attachmentTag, type AttachmentKind } from '../oci/attachment.ts';
import { isManifest, mediaTypes, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { digestOf, type Digest } from '../oci/digest.ts';
import { parseJson } from '../oci/syntax.ts';
import { readContent, type ContentSource } from './store.ts';

type OptionalKind = Exclude<AttachmentKind, 'signature'>;
const optionalKinds = attachmentKinds.filter((kind) => kind !== 'signature');

/** How many images of a remote repository are asked for each optional kind. If none has it, the others are not asked. */
const sampleSize = 8;

/** Looks for what is attached to one image. `finish` has to be called if `find` is not. */
export interface AttachmentSearch {
  /** Finds what is attached to some manifests of the image, in their order. */
  find(subjects: readonly Digest[], read: FindAttachment): Promise<Map<string, Descriptor>>;
  finish(): void;
}

/** Finds an attachment of a kind; undefined if there is none. */
export type FindAttachment = (subject: Digest, kind: AttachmentKind) => Promise<Descriptor | undefined>;

/**
 * Looks for what is attached to images. Of a remote repository the first images alone are asked for the kinds that no cluster requires, because each
 * question is a request. The order of `begin` decides which these are, so that the same images give the same result.
 */
export class AttachmentFinder {
  readonly #samples = new Map<string, Promise<ReadonlySet<OptionalKind>>[]>();

  begin(source: ContentSource): AttachmentSearch {
    const samples = this.#samples.get(source.name) ?? [];
    this.#samples.set(source.name, samples);
    const isSample = source.referrers === undefined || samples.length < sampleSize;
    const own = Promise.withResolvers<ReadonlySet<OptionalKind>>();
    if (isSample) samples.push(own.promise);
    const listKinds = async (): Promise<readonly AttachmentKind[]> => {
      const found = isSample ? [] : await Promise.all(samples);
      return attachmentKinds.filter((kind) => {
        return isSample || kind === 'signature' || found.some((kinds) => kinds.has(kind));
      });
    };
    return {
      find: async (subjects, read) => {
        const kinds = await listKinds();
        const wanted = subjects.flatMap((subject) => kinds.map((kind) => ({ subject, kind })));
        const found = await Promise.all(wanted.map(({ subject, kind }) => read(subject, kind)));
        own.resolve(
          new Set(optionalKinds.filter((kind) => wanted.some((each, at) => each.kind === kind && found[at]))),
        );
        return new Map(
          wanted.flatMap(({ subject, kind }, index) => {
            const descriptor = found[index];
            return descriptor ? [[attachmentTag(subject, kind), descriptor] as const] : [];
          }),
        );
      },
      finish: () => {
        own.resolve(new Set());
      },
    };
  }
}

/** Lists the manifests that refer to an image: by the API of a registry, or else by the tag that stands for it. Throws what the source throws. */
export async function listReferrers(source: ContentSource, subject: Digest): Promise<readonly Descriptor[]> {
  if (source.referrers) return source.referrers(subject);
  return readReferrersTag(source, subject);
}

/** Reads the list of referrers that has a tag; empty if there is none. */
export async function readReferrersTag(
  source: Pick<ContentSource, 'name' | 'resolve' | 'fetch'>,
  subject: Digest,
): Promise<readonly Descriptor[]> {
  const tag = attachmentTag(subject, 'referrers');
  try {
    const descriptor = await source.resolve(tag);
    // Some tools give an image its own digest as a tag.
    if (descriptor.digest === subject) return [];
    return parseManifest(await readContent(source, descriptor), `${tag} in ${source.name}`).manifests;
  } catch (error) {
    if (isPluginError(error, 'not-found')) return [];
    throw error;
  }
}

/** A referrer with the bytes of its manifest. */
export interface Referrer {
  readonly descriptor: Descriptor;
  readonly bytes: Buffer;
}

/**
 * Writes the list of the manifests that refer to an image. It follows from these manifests alone, so that it is the same whether a registry has the
 * API or the tag. Manifests that refer to another image are left out; undefined if no other is left.
 */
export function formatReferrers(subject: Digest, referrers: readonly Referrer[]): Referrer | undefined {
  const manifests = referrers.flatMap(({ descriptor: { mediaType, digest, size }, bytes }) => {
    const fields = parseJson(bytes.toString('utf8')) as ReferrerFields;
    if (fields.subject?.digest !== subject) return [];
    const artifactType = fields.artifactType ?? fields.config?.mediaType;
    const { annotations } = fields;
    return [
      {
        mediaType,
        digest,
        size,
        ...(artifactType !== undefined && { artifactType }),
        ...(annotations && { annotations }),
      },
    ];
  });
  if (manifests.length === 0) return undefined;
  manifests.sort((a, b) => (a.digest < b.digest ? -1 : 1));
  const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.ociIndex, manifests }));
  return { descriptor: { mediaType: mediaTypes.ociIndex, digest: digestOf(bytes), size: bytes.length }, bytes };
}

interface ReferrerFields {
  readonly subject?: { readonly digest?: unknown };
  readonly artifactType?: unknown;
  readonly annotations?: object;
  readonly config?: { readonly mediaType?: unknown };
}

/** Most referrers of one image. */
const referrerLimit = 100;

/** The referrers that can be copied: OCI manifests, each once, a hundred at most. */
export function usableReferrers(descriptors: readonly Descriptor[]): Descriptor[] {
  const manifests = new Map(descriptors.filter(isManifest).map((each) => [each.digest, each]));
  return [...manifests.values()].sort((a, b) => (a.digest < b.digest ? -1 : 1)).slice(0, referrerLimit);
}
