/** An installation: its facts, its versions, its state folder, its files. */
export { defaultSqliteStorage, ownAuthority, type Inherited, type Installation } from './installation/installation.ts';
export { requireOwner } from './installation/stateFolder.ts';
export { imagesOfVersion, knownVersions } from './installation/versions.ts';
