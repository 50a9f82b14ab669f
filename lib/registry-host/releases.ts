/** Releases of mirror-registry: images, installers and bundles. */
export { canAskPodman, loadReleaseImages, type RegistryRelease, type TargetImages } from './releases/images.ts';
export { createRegistryBundle, imagesOfBundle } from './releases/registryBundle.ts';
export { openRegistryRelease, pushRelease, type OpenedRepository } from './releases/registryRelease.ts';
