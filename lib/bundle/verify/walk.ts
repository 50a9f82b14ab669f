import { attachedTo, attachmentName } from '../../content/oci/attachment.ts';
import {
  hasImageLayers,
  isContainerImage,
  isManifest,
  type Descriptor,
  type Manifest,
} from '../../content/oci/descriptor.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { isAttachment, walkManifests } from '../../content/store/imageGraph.ts';
import { describeProblem, type Problem } from '../problem.ts';
import type { ScannedContent, ScannedItem } from './scan.ts';

/** Follows images down to their blobs in the scanned content, and collects missing and corrupt content. */
export class Walk {
  /** All content that images need, present or missing, with its first image; blobs with their sizes in bytes. */
  readonly manifests = new Map<Digest, string>();
  readonly blobs = new Map<Digest, number>();
  readonly #scanned: ScannedContent;
  readonly #lacking = new Map<string, Problem & { readonly images: string[] }>();

  constructor(scanned: ScannedContent) {
    this.#scanned = scanned;
  }

  /** The content that the visited images lack, each item once with all the images that need it. */
  get problems(): readonly Problem[] {
    return [...this.#lacking.values()];
  }

  /** Whether a manifest is missing, so that the needed content is not fully known. */
  get isPartial(): boolean {
    return this.problems.some(({ subject }) => subject === 'manifest');
  }

  /** Follows an image. Returns whether all its content is present and intact. */
  visit(root: Digest, image: string): boolean {
    let isWhole = true;
    const { manifests } = this.#scanned;
    for (const { digest, manifest, children } of walkManifests(root, (each) => manifests.get(each)?.manifest)) {
      if (!this.manifests.has(digest)) this.manifests.set(digest, image);
      if (!manifest) {
        this.#note('manifest', digest, manifests.get(digest)?.fault ?? 'missing', image);
        isWhole = false;
      }
      for (const child of children) if (!isManifest(child) && !this.#visitBlob(child, image)) isWhole = false;
    }
    return isWhole;
  }

  #visitBlob({ digest, size }: Descriptor, image: string): boolean {
    this.blobs.set(digest, size);
    const item = this.#scanned.blobs.get(digest);
    const fault = faultOf(item, size);
    if (fault) this.#note('blob', digest, fault, image);
    return fault === undefined;
  }

  #note(subject: 'manifest' | 'blob', what: Digest, fault: Fault, image: string): void {
    const key = `${subject} ${what}`;
    const words = {
      missing: `the ${key} is missing`,
      truncated: `the ${key} is cut short`,
      corrupt: `the ${key} is corrupt`,
      malformed: `the ${key} is not an image manifest`,
      resized: `the ${key} has another size than its manifest says`,
    }[fault];
    const kind = fault === 'malformed' || fault === 'resized' ? 'inconsistent' : fault;
    const noted = this.#lacking.get(key) ?? { ...describeProblem(kind, subject, what, words), images: [] };
    this.#lacking.set(key, noted);
    if (noted.images.at(-1) !== image) noted.images.push(image);
  }
}

/** The tags that have the names of attachments: those of attachments, and those of images. */
export interface VisitedAttachments {
  readonly tags: readonly string[];
  readonly images: ReadonlySet<string>;
}

/** Follows what is attached to the images so far, except for images that a runtime may run. */
export function visitAttachments({ tags, manifests, blobs }: ScannedContent, walk: Walk): VisitedAttachments {
  const isRunnable = (manifest: Manifest): boolean =>
    hasImageLayers(manifest) ||
    (isContainerImage(manifest) && manifest.layers.some(({ digest }) => blobs.get(digest)?.isPacked === true));
  const attachments = [...tags].flatMap(([tag, { digest }]) => {
    const subject = attachedTo(tag);
    const image = subject && walk.manifests.get(subject);
    if (!digest || image === undefined) return [];
    return [
      { tag, digest, image, isOne: isAttachment(tag, digest, (each) => manifests.get(each)?.manifest, isRunnable) },
    ];
  });
  const { true: own = [], false: images = [] } = Object.groupBy(attachments, ({ isOne }) => `${isOne}`);
  for (const { tag, digest, image } of own) walk.visit(digest, `the ${attachmentName(tag)} of ${image}`);
  return { tags: own.map(({ tag }) => tag), images: new Set(images.map(({ tag }) => tag)) };
}

type Fault = 'missing' | 'truncated' | 'corrupt' | 'malformed' | 'resized';

function faultOf(item: ScannedItem | undefined, size: number): Fault | undefined {
  if (!item) return 'missing';
  if (item.fault) return item.size < size ? 'truncated' : item.fault;
  return item.size === size ? undefined : 'resized';
}
