/** The vocabulary of OCI: digests, descriptors, references, attachments. */
export {
  attachedTo,
  attachmentKinds,
  attachmentName,
  attachmentTag,
  countAttachments,
  parseAttachmentTag,
} from './oci/attachment.ts';
export {
  childrenOf,
  hasImageLayers,
  isContainerImage,
  isIndex,
  isManifest,
  isManifestText,
  manifestSizeLimit,
  mediaTypes,
  parseManifest,
  sumSizes,
  type Descriptor,
  type Manifest,
} from './oci/descriptor.ts';
export { digestOf, hexOf, isDigest, parseDigest, type Digest } from './oci/reference.ts';
export {
  digestIn,
  formatReference,
  isRepository,
  isTag,
  parseReference,
  parseRepository,
  repositoryIn,
  type Reference,
} from './oci/reference.ts';
export { parseJson, parseJsonIfValid } from './oci/syntax.ts';
