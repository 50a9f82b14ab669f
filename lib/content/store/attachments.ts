import { ignoring } from '../../errors.ts';
import { attachmentTag } from '../oci/attachment.ts';
import { isManifest, mediaTypes, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { digestOf, type Digest } from '../oci/digest.ts';
import { parseJson } from '../oci/syntax.ts';
import { readContent, type ContentSource } from './store.ts';

/** The largest number of pages of tags that are read in advance. Beyond it, each tag costs less as a request of its own. */
const pageLimit = 20;

/**
 * Knows the tags of remote repositories, so that an attachment that does not exist costs no request. Expect each image
 * before the first question about its repository: with more images, a longer list of tags is worth its requests.
 */
export class KnownTags {
  readonly #images = new Map<string, number>();
  readonly #tags = new Map<string, Promise<ReadonlySet<string> | undefined>>();

  expectImage({ name }: ContentSource): void {
    this.#images.set(name, (this.#images.get(name) ?? 0) + 1);
  }

  /** Returns the tags of a repository; undefined if they are not known, because there are too many or the source is local. */
  of(source: ContentSource): Promise<ReadonlySet<string> | undefined> {
    const { name } = source;
    const tags =
      this.#tags.get(name) ?? Promise.resolve(source.knownTags?.(Math.min(this.#images.get(name) ?? 1, pageLimit)));
    this.#tags.set(name, tags);
    return tags;
  }
}

/**
 * Lists the manifests that refer to an image: by the API of a registry, or else by the tag that stands for it. Throws
 * what the source throws.
 */
export async function listReferrers(
  source: ContentSource,
  subject: Digest,
  tags?: ReadonlySet<string>,
): Promise<readonly Descriptor[]> {
  const listed = await source.referrers?.(subject);
  if (listed) return listed;
  return tags?.has(attachmentTag(subject, 'referrers')) === false ? [] : readReferrersTag(source, subject);
}

/** Reads the list of referrers that has a tag; empty if there is none. */
async function readReferrersTag(source: ContentSource, subject: Digest): Promise<readonly Descriptor[]> {
  const tag = attachmentTag(subject, 'referrers');
  const descriptor = await source.resolve(tag).catch(ignoring('not-found'));
  // Some tools give an image its own digest as a tag.
  if (!descriptor || descriptor.digest === subject) return [];
  const bytes = await readContent(source, descriptor).catch(ignoring('not-found'));
  return bytes ? parseManifest(bytes, `${tag} in ${source.name}`).manifests : [];
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
        artifactType,
        annotations,
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
