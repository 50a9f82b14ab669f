/** Bundles from another machine, whole or in parts. */
export { checkBaseBlobs, openBaseBlobs, serveBaseBlobs } from './transfer/baseBlobs.ts';
export {
  baseBlobsPath,
  checkBundleDigest,
  compareDigest,
  fetchBundle,
  hashBundle,
  openRemoteBundle,
  readOutline,
  replicaPath,
} from './transfer/replica.ts';
export { Transfer, type RemoteServer, type WantedContent } from './transfer/transfer.ts';
