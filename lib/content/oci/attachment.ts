import { hexOf, isDigest, type Digest } from './reference.ts';

/** What is attached to an image: by cosign’s tags, or, as `referrers`, by OCI 1.1. */
export type AttachmentKind = 'signature' | 'attestation' | 'sbom' | 'referrers';

const suffixes: Readonly<Record<AttachmentKind, string>> = {
  signature: '.sig',
  attestation: '.att',
  sbom: '.sbom',
  // distribution-spec, “Referrers Tag Schema”.
  referrers: '',
};

/** All kinds of attachments. */
export const attachmentKinds = Object.keys(suffixes) as readonly AttachmentKind[];

/**
 * The tag by which an attachment of an image is found in the image’s repository: `sha256-<hex>.sig`, as cosign names
 * it, `.att` and `.sbom`. Without a suffix it is a list of the manifests that refer to the image.
 */
export function attachmentTag(subject: Digest, kind: AttachmentKind = 'signature'): string {
  return `sha256-${hexOf(subject)}${suffixes[kind]}`;
}

/** Reads the tag of an attachment; undefined for any other tag. */
export function parseAttachmentTag(
  tag: string,
): { readonly subject: Digest; readonly kind: AttachmentKind } | undefined {
  const [, hex = '', suffix = ''] = /^sha256-([0-9a-f]*)(.*)$/.exec(tag) ?? [];
  const subject = `sha256:${hex}`;
  const kind = attachmentKinds.find((each) => suffixes[each] === suffix);
  return kind && isDigest(subject) ? { subject, kind } : undefined;
}

/** The image to which a tag attaches something; undefined for any other tag. */
export function attachedTo(tag: string): Digest | undefined {
  return parseAttachmentTag(tag)?.subject;
}

const names: Readonly<Record<AttachmentKind, readonly [one: string, several: string]>> = {
  signature: ['sigstore signature', 'sigstore signatures'],
  attestation: ['attestation', 'attestations'],
  sbom: ['SBOM', 'SBOMs'],
  referrers: ['list of referrers', 'lists of referrers'],
};

/** What the attachment with a tag is called in messages: `SBOM`. */
export function attachmentName(tag: string): string {
  return names[parseAttachmentTag(tag)?.kind ?? 'signature'][0];
}

/** Says how many attachments of each kind have a tag among some: `12 sigstore signatures, 1 SBOM`. */
export function countAttachments(tags: Iterable<string>): string {
  const kinds = [...tags].flatMap((tag) => parseAttachmentTag(tag)?.kind ?? []);
  return attachmentKinds
    .map((kind) => ({ kind, count: kinds.filter((each) => each === kind).length }))
    .filter(({ kind, count }) => count > 0 || kind === 'signature')
    .map(({ kind, count }) => `${count} ${names[kind][count === 1 ? 0 : 1]}`)
    .join(', ');
}
