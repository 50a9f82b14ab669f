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
export {
  type Digest,
  digestIn,
  digestOf,
  formatReference,
  hexOf,
  isDigest,
  isRepository,
  isTag,
  parseDigest,
  parseReference,
  parseRepository,
  type Reference,
  repositoryIn,
} from './oci/reference.ts';
export { parseJson, parseJsonIfValid } from './oci/syntax.ts';
