/** Clients of registries, with credentials and mirrors. */
export { Credentials } from './registry/auth/credentials.ts';
export { MirrorSets, matchedBy, readMirrorSets } from './registry/mirrors.ts';
export { Registries, type RegistryAccess } from './registry/registries.ts';
export { DestinationError } from './registry/relay.ts';
export { Transport, type ContentRequest } from './registry/transport.ts';
