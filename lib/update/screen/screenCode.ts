/**
 * What the screen of a node may say at the end of something, or when it waits for a person. Each has a code to read out
 * by telephone, and a meaning for an administrator. A code never changes its meaning, and a code that is gone is not
 * used again. docs/screen-codes.md has a section for each. Codes are digits only, because letters sound alike. The last
 * digit is a check digit (ISO/IEC 7064, MOD 11,10), so that one wrong digit, or two that changed places, are noticed.
 */
export const screenCodes = {
  completed: ['5287', 'The update is complete.'],
  aborted: ['8754', 'The update was aborted before it began.'],
  superseded: ['9136', 'Another update was requested meanwhile.'],
  notAllowed: ['8352', 'A bundle was found, and no digest is allowed.'],
  held: ['9683', 'The update is ready and held.'],
  outsideWindow: ['4518', 'The update is ready, and waits for its maintenance window.'],
  clockNotTrusted: ['3574', 'The update is ready, and its maintenance window needs a clock that is trusted.'],
  decisionNeeded: ['7632', 'An acknowledgement or a known risk needs a decision.'],
  blocked: ['6849', 'Something of the cluster blocks the update.'],
  severalBundles: ['6785', 'Several UpgradeBundles are active.'],
  baseMissing: ['4253', 'Nodes lack the base release of a delta bundle.'],
  otherBundle: ['7392', 'A USB drive holds another bundle than the allowed one.'],
  driveUnreadable: ['6728', 'A USB drive with the allowed bundle cannot be read to its end, or is corrupt.'],
  driveRemoved: ['8192', 'A USB drive was removed while the node needed it.'],
  driveAwaited: ['2549', 'A bundle is allowed, and no node has verified it yet.'],
  driveNeeded: ['3814', 'No node has the allowed bundle, and nodes need it.'],
  notTrusted: ['2436', 'The release has no signature of a trusted key.'],
  diskFull: ['2581', 'A node has too little disk space.'],
  driveEmpty: ['7624', 'A USB drive has nothing like a bundle.'],
  driveFormat: ['9763', 'A USB drive has a file system that is not supported, or cannot be mounted.'],
  driveSilent: ['9546', 'A USB drive does not answer.'],
  driveDamaged: ['5869', 'A USB drive has a file or a tar that is not a complete bundle.'],
  driveFolder: ['6179', 'A USB drive has a bundle in a folder, where bundles are not found.'],
  nodesFailed: ['8256', 'Nodes failed to load the images, or their agents are silent.'],
  pinningFailed: ['6291', 'Images could not be pinned.'],
  backupFailed: ['5498', 'The backup of etcd failed.'],
  notAccepted: ['5367', 'The cluster version operator refuses the release.'],
  noProgress: ['2143', 'The update makes no progress.'],
  controllerFailing: ['2731', 'The controller cannot read or write an object, or verify the bundle.'],
  imagesLost: ['5617', 'Nodes lost images of the update.'],
  imageDamaged: ['3871', 'The node cannot read its copy of the bundle, or an image lost content.'],
  nodeFailed: ['7938', 'The agent of the node failed at its task, and tries again.'],
  unreachable: ['5641', 'The agent of the node does not reach the API server.'],
} as const satisfies Readonly<Record<string, readonly [code: string, meaning: string]>>;

/** What a screen says for the reason of an update (`findReason`). All others need no person. */
const reasonsOfUpdates: Readonly<Record<string, ScreenReason>> = {
  NotAllowed: 'notAllowed',
  NotFound: 'driveAwaited',
  OtherBundle: 'otherBundle',
  Blocked: 'blocked',
  NotControlPlaneOnly: 'blocked',
  SeveralBundles: 'severalBundles',
  BaseMissing: 'baseMissing',
  AcknowledgementRequired: 'decisionNeeded',
  RiskNotAccepted: 'decisionNeeded',
  NodesFailed: 'nodesFailed',
  NodesMissing: 'nodesFailed',
  ImagesLost: 'imagesLost',
  PinningFailed: 'pinningFailed',
  BackupFailed: 'backupFailed',
  NoNode: 'backupFailed',
  Held: 'held',
  OutsideWindow: 'outsideWindow',
  ClockNotTrusted: 'clockNotTrusted',
  NotAccepted: 'notAccepted',
  NoProgress: 'noProgress',
  Stalled: 'controllerFailing',
  Aborted: 'aborted',
  Superseded: 'superseded',
};

/** Returns what a screen says for the reason of an update; undefined if that needs no person. */
export function reasonOfUpdate(reason: string | undefined): ScreenReason | undefined {
  return reason === undefined ? undefined : reasonsOfUpdates[reason];
}

/** A key of screenCodes. */
export type ScreenReason = keyof typeof screenCodes;

/** Returns the code that a screen shows for a reason: four digits, of which the last is the check digit. */
export function codeOf(reason: ScreenReason): string {
  return screenCodes[reason][0];
}

/** Returns the check digit for the other digits of a code (ISO/IEC 7064, MOD 11,10). */
export function checkDigit(digits: string): string {
  let product = 10;
  for (const digit of digits) product = (((product + Number(digit)) % 10 || 10) * 2) % 11;
  return String((11 - product) % 10);
}

/** Returns whether a text has the form of a code and a wrong digit. */
export function isMisread(text: string): boolean {
  return /^\d{4}$/.test(text) && checkDigit(text.slice(0, 3)) !== text.slice(3);
}
