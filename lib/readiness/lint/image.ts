import { readDocuments } from '#content/files';
import { formatReference, parseReference, parseJson } from '#content/oci';
import { fieldsAt, isFields, textOf, type Fields, fieldsOf, listOf } from '#fields';

/** Returns whether an image is named by its digest, so that no registry is needed to know which it is. */
export function isByDigest(image: string): boolean {
  return image.includes('@sha256:');
}

/** Returns an image’s name as nodes list it: with its registry, and without a tag if it has a digest. */
export function normalizeImage(name: string): string {
  try {
    const { registry, repository, tag, digest } = parseReference(name);
    return formatReference({ registry, repository, digest, tag: digest === undefined ? (tag ?? 'latest') : undefined });
  } catch {
    return name;
  }
}

/** The word that stands for an expression of a template, such as `{{ .Image }}`, in a manifest that is read. */
export const templateWord = '__template__';

/**
 * Returns whether an image is filled in later, by a template or by the operator that reads the manifest: `${IMAGE}`,
 * `<injected>`.
 */
export function isPlaceholder(image: string): boolean {
  return image.includes(templateWord) || !/^[\w.:/@[\]-]+$/.test(image);
}

/**
 * Returns whether an image is on this machine: in a folder, an archive or the image store, or in a registry on the
 * loopback interface.
 */
export function isLocalImage(image: string): boolean {
  const name = image.replace(/^docker:\/\//, '');
  return /^(?:containers-storage|dir|oci|oci-archive|docker-archive|docker-daemon|ostree|file):|^(?:localhost|127\.[\d.]+|\[::1\])(?::\d+)?\//.test(
    name,
  );
}

/** Returns whether a text is an image with its registry and a tag or digest, and nothing else. */
export function isFullReference(text: string): boolean {
  return (
    text.length < 500 &&
    /^[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)*(?:\.[a-z]{2,}|:\d+)\/[a-z0-9._/-]+(?::[\w.-]+|@sha256:[0-9a-f]{64})$/.test(text)
  );
}

/** An image that an operator’s resource names, in fields that only its operator knows. */
export interface ResourceImage {
  readonly image: string;
  /** The field that has it, relative to the item. */
  readonly field?: string;
  /** Whether the resource wants it pulled at each start. */
  readonly pullsAlways?: boolean;
}

/**
 * Reads the image that fields of an operator’s resource name in one of the usual forms. These are `image`, also beside
 * a pull policy, `repository`, `image` and `version` (NVIDIA), or `repository` and `tag` (Helm). Undefined for others.
 */
export function readResourceImage(fields: Fields): ResourceImage | undefined {
  const { registry, repository, image, version, tag, digest, imagePullPolicy, pullPolicy } = fields;
  const pullsAlways = [imagePullPolicy, pullPolicy].includes('Always');
  const [host, base, name] = [textOf(registry), textOf(repository), textOf(image)];
  const mark = textOf(digest) ?? textOf(version) ?? textOf(tag);
  const path = [host, base, name].filter((part) => part !== undefined && part !== '').join('/');
  const isSplit = base !== undefined && mark !== undefined && mark !== '';
  const text = isSplit ? `${path}${mark.startsWith('sha256:') ? '@' : ':'}${mark}` : name;
  if (text === undefined || (!isSplit && !pullsAlways && !looksLikeImage(text))) return undefined;
  return { image: text, field: name === undefined ? 'repository' : 'image', pullsAlways };
}

/** Returns whether the value of a field `image` is an image with a tag or a registry, and no other word. */
function looksLikeImage(text: string): boolean {
  return /^[\w.-]+(?::\d+)?(?:\/[\w.-]+)*:[\w.-]+$/.test(text) || /^[\w-]+(?:\.[\w-]+)+(?::\d+)?\/[\w./-]+$/.test(text);
}

/** A disk of a virtual machine that CDI imports from a registry. */
export interface DiskImport {
  readonly url: string;
  /** The field that has the URL, relative to the item. */
  readonly field: string;
  /** Whether it is imported again on a schedule (DataImportCron). */
  readonly isScheduled: boolean;
}

/** Reads the import in the spec of a DataVolume or of a DataImportCron; undefined for other fields. */
export function readDiskImport(fields: Fields): DiskImport | undefined {
  const isScheduled = textOf(fields['schedule']) !== undefined && fields['managedDataSource'] !== undefined;
  const path = isScheduled ? ['template', 'spec', 'source', 'registry'] : ['source', 'registry'];
  const registry = fieldsAt(fields, ...path);
  const key = isFields(registry) && registry['url'] === undefined ? 'imageStream' : 'url';
  const url = textOf(registry[key]);
  return url === undefined ? undefined : { url, field: [...path, key].join('.'), isScheduled };
}

/** The components of a release by their images, from its `image-references`. */
export interface ReleaseImages {
  /** The name of the list: in a release, its version. */
  readonly version: string | undefined;
  /** Returns the component that has an image; undefined if none has. */
  componentOf(image: string): string | undefined;
}

/**
 * The name of the file that lists the images of a release, or that an operator’s sources have for the release to fill
 * in.
 */
export const imageReferences = 'image-references';

const limits = { length: 16 * 1024 * 1024, tokens: 60_000 };

/**
 * Reads the images of `image-references` files. In a release they are digests, in the sources of an operator the names
 * that the release replaces by digests. Files that cannot be read count as empty, because an operator may have several.
 */
export function readReleaseImages(texts: readonly string[], release?: string): ReleaseImages | undefined {
  const streams = texts.map(readStream);
  const components = new Map(streams.flatMap(readTags));
  if (components.size === 0) return undefined;
  if (release !== undefined) components.set(keyOf(release), 'release');
  return {
    version: textOf(fieldsAt(streams[0], 'metadata')['name']),
    componentOf: (image) => components.get(keyOf(image)),
  };
}

/** Mirrors keep the digest and change the repository. */
function keyOf(image: string): string {
  return isByDigest(image) ? image.slice(image.indexOf('@')) : normalizeImage(image);
}

function readTags(stream: unknown): [key: string, component: string][] {
  return listOf(fieldsAt(stream, 'spec')['tags']).flatMap(({ name, from }) => {
    const image = textOf(fieldsOf(from)['name']);
    return image === undefined ? [] : [[keyOf(image), String(name)]];
  });
}

function readStream(text: string): unknown {
  try {
    return text.trimStart().startsWith('{') ? parseJson(text) : readDocuments(text, limits).values[0];
  } catch {
    return undefined;
  }
}
