/** Creation of a bundle: its origins, its contents, and the file. */
export type { BaseRequest } from './create/base.ts';
export type { BundledCatalog, CatalogRequest } from './create/catalogs.ts';
export { gatherContents, layOutBundle, listArtifacts } from './create/contents.ts';
export { createBundle, type CreateRequest, type CreateResult } from './create/create.ts';
export { openLocalProvider, RegistryProvider, type ReleaseProvider } from './create/releaseProvider.ts';
export {
  listBundledVersions,
  openReleaseSource,
  type LocalExtraImage,
  type ReleaseSource,
  type ReleaseSourceRequest,
} from './create/releaseSource.ts';
export { planReleases } from './create/releases.ts';
export { heldImagesOf } from './create/siteCheck.ts';
export { writeBundle } from './create/writeBundle.ts';
