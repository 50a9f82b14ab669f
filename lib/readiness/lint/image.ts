import { formatReference, parseReference } from '../../content/oci/reference.ts';

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

/** Returns whether an image is filled in later, by a template or by the operator that reads the manifest: `${IMAGE}`, `<injected>`. */
export function isPlaceholder(image: string): boolean {
  return image.includes(templateWord) || !/^[\w.:/@[\]-]+$/.test(image);
}

/** Returns whether an image is on this machine: in a folder, an archive or the image store, or in a registry on the loopback interface. */
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
