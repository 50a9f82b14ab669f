/** Files of this machine: reading within limits, atomic writes, locks, free space, folders that others may change. */
export { partialName, renameDurably, writeAtomically, writeDurably } from './files/atomicWrite.ts';
export {
  checkFileWritable,
  checkFolderCreatable,
  checkSpace,
  describeWriteError,
  makeFolders,
  measureFree,
  syncFolder,
} from './files/disk.ts';
export {
  readDocuments,
  readScalars,
  type DocumentLimits,
  type DocumentScalar,
  type Documents,
} from './files/documents.ts';
export {
  describeReadError,
  hashFile,
  ignoreMissing,
  isMissing,
  readChunks,
  readFileContent,
  readFully,
  readRange,
  writeFully,
} from './files/fileRange.ts';
export {
  checkLock,
  hideMachine,
  identifyProcess,
  processIdentity,
  processState,
  readBoot,
  readHolder,
  takeLock,
} from './files/lock.ts';
export { OpenedFolder, RootFolder } from './files/rootFolder.ts';
export { decodeText, openRegular, readPem, readSmallFile, readSmallInput, readWhole } from './files/smallFile.ts';
