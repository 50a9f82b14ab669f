import { PluginError } from '#errors';
import { isAhead, type CertificateStatus } from '../certificates/certificates.ts';
import type { RenewalNeed } from '../certificates/renewal.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { valuesOf, type PodmanCommand } from '../detect/podmanCommand.ts';
import { applyEdits, type Edit, type UnitFile } from '../detect/units.ts';
import type { Installation, ReleaseComponent } from '../installation/installation.ts';
import { compareTags, mirrorRegistryVersion, quayVersionOf } from '../installation/versions.ts';
import type { ImageChange, TargetImages } from '../releases/images.ts';
import type { MissingUnit } from '../releases/missingUnits.ts';
import {
  keepsPostgres,
  listDatabaseBlockers,
  listMigrationEdits,
  minorOf,
  planMigration,
  type MigrationPlan,
} from './migrationPlan.ts';
import type { UnmetNeeds } from './readiness.ts';
import { redisSecret } from './secrets.ts';

/** The input of a plan. */
export interface PlanInput {
  readonly detected: DetectedInstallation;
  readonly certificates: CertificateStatus;
  readonly renewals: RenewalNeed;
  /** The changes that `listImageChanges` finds. */
  readonly images: readonly ImageChange[];
  /** The names of images that may have changed under the same name, because podman was not asked. */
  readonly unknown: readonly string[];
  /** The number of days before its expiry from which a certificate needs attention. */
  readonly renewBefore: number;
  readonly now: Date;
  /** The volume or folder for the database, if it moves to SQLite. */
  readonly sqliteStorage: string;
  readonly missing: readonly MissingUnit[];
  readonly needs: UnmetNeeds;
}

/** New content of a unit file, as text. */
export interface UnitChange {
  readonly path: string;
  readonly before: string;
  readonly after: string;
  /** The reasons for its changes, one phrase each. */
  readonly reasons: readonly string[];
}

/** The steps of an upgrade, in order, as plain data. The plan is the same for the same host and target. */
export interface UpgradePlan {
  /** The release of the mirror registry before and after, if known. */
  readonly from: string | undefined;
  readonly to: string | undefined;
  /** `minor` if the minor version of Quay changes. */
  readonly level: 'none' | 'certificates' | 'patch' | 'minor';
  readonly images: readonly ImageChange[];
  readonly units: readonly UnitChange[];
  /** The files of missing units that are written again. */
  readonly repairs: readonly string[];
  /** The move of the database from PostgreSQL to SQLite, if there is one. */
  readonly migration?: MigrationPlan;
  readonly certificates: RenewalNeed;
  /** The units to restart, in order. */
  readonly restart: readonly string[];
  /** The blockers, one sentence each. */
  readonly blockers: readonly string[];
  readonly warnings: readonly string[];
  /** Tasks for the administrator that are due soon, one sentence each. */
  readonly due: readonly string[];
}

const components = ['pause', 'redis', 'quay'] as const;

const sitePackages = 'PYTHONUSERBASE_SITE_PACKAGE=/opt/app-root/lib/python3.12/site-packages';

/**
 * Plans an upgrade: images, units and certificates. It is a pure function of its input. The plan of an up-to-date host
 * has no changes.
 */
export function planUpgrade({
  detected,
  certificates,
  renewals,
  images,
  unknown,
  renewBefore,
  now,
  sqliteStorage,
  missing,
  needs,
}: PlanInput): UpgradePlan {
  const { installation } = detected;
  const migration = planMigration(detected, images, sqliteStorage);
  const units = listUnitChanges(detected, images, migration);
  const changed = new Set(images.map(({ component }) => component));
  const hasPod = detected.units.has('quay-pod');
  const isPostgres = keepsPostgres(installation, migration);
  const isMissing = (name: string): boolean => missing.some((each) => each.name === name);
  const restart = [
    ...(isMissing('quay-pod') || (changed.has('pause') && hasPod) ? ['quay-pod'] : []),
    ...(missing.length > 0 || changed.has('pause') || changed.has('redis') ? ['quay-redis'] : []),
    // It is stopped while it is copied, and with its pod.
    ...(isPostgres && (changed.has('quay') || (changed.has('pause') && hasPod)) ? ['quay-postgres'] : []),
    ...(missing.length > 0 || changed.size > 0 || renewals.server.length > 0 ? ['quay-app'] : []),
  ];
  const quay = images.find(({ component }) => component === 'quay');
  const quayVersion = quayVersionOf(quay?.to ?? '');
  return {
    from: installation.version,
    to: quay ? quayVersion && mirrorRegistryVersion(quayVersion) : installation.version,
    level: levelOf(images, renewals),
    repairs: missing.flatMap(({ path, text }) => (text === undefined ? [] : [path])),
    images,
    units,
    migration,
    certificates: renewals,
    restart,
    blockers: [
      ...listDatabaseBlockers(detected, images, migration),
      ...listDowngrades(images),
      ...needs.blockers,
      ...missing.flatMap(({ path, text }) =>
        text === undefined ? [`${path} is missing, and this program cannot write it: restore it from a backup`] : [],
      ),
      ...certificateBlockers(certificates, installation, renewals, now),
    ],
    warnings: [
      ...installation.remarks,
      ...listWarnings(images),
      ...needs.warnings,
      ...unknown.map((image) => `podman was not asked whether ${image} is the same image`),
    ],
    due: listDue(certificates, renewals, renewBefore),
  };
}

/**
 * Lists the images that change: images with a new name, and the images in `respun`, which change under the same name.
 */
export function listImageChanges(
  { images }: Installation,
  target: TargetImages,
  respun: readonly ReleaseComponent[],
): ImageChange[] {
  return components.flatMap((component): ImageChange[] => {
    const [present, to] = [images[component], target[component]];
    if (!present || to === undefined || (present.value === to && !respun.includes(component))) return [];
    return [{ component, from: present.value, to, file: present.file, line: present.line }];
  });
}

/** Returns whether a plan changes nothing. */
export function isUpToDate({ images, units, repairs, certificates }: UpgradePlan): boolean {
  return (
    images.length + units.length + repairs.length + certificates.server.length + certificates.authority.length === 0
  );
}

/** Checks that a plan is not blocked. Throws `unsupported` with all blockers. */
export function requireFeasible({ blockers }: UpgradePlan): void {
  const [first, ...others] = blockers;
  if (first === undefined) return;
  throw new PluginError('unsupported', [first, ...others].join('; '), {
    hint: 'Nothing was changed. See the guide to upgrading a mirror registry.',
  });
}

function levelOf(images: readonly ImageChange[], renewals: RenewalNeed): UpgradePlan['level'] {
  if (images.length === 0) return renewals.server.length > 0 ? 'certificates' : 'none';
  return images.some(({ component, from, to }) => component === 'quay' && minorOf(from) !== minorOf(to))
    ? 'minor'
    : 'patch';
}

function listUnitChanges(
  detected: DetectedInstallation,
  images: readonly ImageChange[],
  migration: MigrationPlan | undefined,
): UnitChange[] {
  const edits = new Map<string, { file: UnitFile; edits: Edit[]; reasons: string[] }>();
  const add = (file: UnitFile, edit: Edit, reason: string): void => {
    const change = edits.get(file.path) ?? { file, edits: [], reasons: [] };
    change.edits.push(edit);
    change.reasons.push(reason);
    edits.set(file.path, change);
  };
  for (const { component, from, to } of images) {
    const command = detected.commands[component];
    const word = component === 'pause' ? valuesOf(command, 'infra-image')[0]?.word : command?.image;
    if (!command || !word) continue;
    const text = word.text.startsWith('--infra-image=') ? `--infra-image=${to}` : to;
    if (from !== to) add(command.setting.file, { start: word.start, end: word.end, text }, `the image of ${component}`);
    const fixes =
      component === 'quay'
        ? listRequiredUnitFixes(command, to)
        : component === 'redis'
          ? listRequiredRedisFixes(command)
          : [];
    for (const [edit, reason] of fixes) add(command.setting.file, edit, reason);
  }
  for (const { file, edit, reason } of migration ? listMigrationEdits(detected, migration) : [])
    add(file, edit, reason);
  return [...edits.values()].map(({ file, edits: unitEdits, reasons }) => {
    const stated = reasons.filter((reason) => reason !== '');
    return { path: file.path, before: file.text, after: applyEdits(file.text, unitEdits), reasons: stated };
  });
}

/** Lists the changes that newer versions of Quay need, and the changes of newer installers. */
function listRequiredUnitFixes(command: PodmanCommand, to: string): [Edit, string][] {
  const fixes: [Edit, string][] = [];
  const { image, command: words } = command;
  for (const { value, word } of valuesOf(command, 'volume')) {
    const flags = /^[^:]+:\/sqlite(?::([A-Za-z,]*))?$/.exec(value);
    if (!flags || flags[1]?.split(',').includes('U')) continue;
    // Quotes and specifiers of the word stay.
    const place = word.end - (/["']$/.test(command.setting.file.text.slice(word.start, word.end)) ? 1 : 0);
    const edit = { start: place, end: place, text: flags[1] === undefined ? ':U' : ',U' };
    fixes.push([edit, 'U on the volume of the database, required by podman 5']);
  }
  const version = quayVersionOf(to);
  const has = valuesOf(command, 'env').some(({ value }) => value.startsWith('PYTHONUSERBASE_SITE_PACKAGE='));
  if (image && !has && version !== undefined && compareTags(version, '3.12.14') >= 0) {
    const edit = { start: image.start, end: image.start, text: `-e ${sitePackages} ` };
    fixes.push([edit, 'PYTHONUSERBASE_SITE_PACKAGE, required by Quay 3.12.14 and later']);
  }
  const [verb] = words;
  if (verb?.text === 'registry-nomigrate') {
    fixes.push([
      { start: verb.start, end: verb.end, text: 'registry' },
      'registry instead of registry-nomigrate, to migrate the database',
    ]);
  }
  return fixes;
}

/** Moves the password of Redis into a secret, because all users can see command lines. */
function listRequiredRedisFixes({ options }: PodmanCommand): [Edit, string][] {
  const given = options.find(({ name, value }) => name === 'env' && value?.startsWith('REDIS_PASSWORD='));
  const [first] = given?.words ?? [];
  const last = given?.words.at(-1);
  if (!first || !last) return [];
  const edit = { start: first.start, end: last.end, text: `--secret=${redisSecret},type=env,target=REDIS_PASSWORD` };
  return [[edit, 'the password in a secret instead of the command line']];
}

function listDowngrades(images: readonly ImageChange[]): string[] {
  return images.flatMap(({ component, from, to }) => {
    const [old, fresh] = [tagOf(from), tagOf(to)];
    if (old === undefined || fresh === undefined || compareTags(old, fresh) <= 0) return [];
    return component === 'quay' ? [`${to} is older than ${from}: the database cannot be downgraded`] : [];
  });
}

function certificateBlockers(
  status: CertificateStatus,
  { host }: Installation,
  { server, key }: RenewalNeed,
  now: Date,
): string[] {
  const { kind, problems, hasKey } = status;
  if (kind === 'automatic' && isAhead(status, now)) return [problems.join(', ')];
  // A certificate is renewed with its own key.
  if (kind === 'automatic' && !hasKey && key.length === 0) return [`${problems.join(', ')}: a new key is needed`];
  // A certificate that is renewed or replaced does not block clients.
  if (kind === 'automatic' || kind === 'external' || server.length > 0 || problems.length === 0) return [];
  return [`clients cannot reach ${host.value}: ${problems.join(', ')}`];
}

/** Lists certificates that expire soon and that this program does not renew. */
function listDue({ kind, server }: CertificateStatus, renewals: RenewalNeed, renewBefore: number): string[] {
  if (
    !server ||
    kind === 'automatic' ||
    kind === 'external' ||
    renewals.server.length > 0 ||
    server.daysLeft >= renewBefore
  )
    return [];
  const date = server.notAfter.slice(0, 10);
  const when = server.daysLeft < 0 ? `expired on ${date}` : `expires on ${date}, in ${server.daysLeft} days`;
  return [`${server.file} ${when}, and this program does not renew it: install a new one with certs renew`];
}

function listWarnings(images: readonly ImageChange[]): string[] {
  const unknown = images.filter(({ from, to }) => tagOf(from) === undefined || tagOf(to) === undefined);
  return [
    ...images
      .filter(({ from, to }) => repositoryOf(from) !== repositoryOf(to))
      .map(({ from, to }) => `${to} is from another repository than ${from}`),
    ...unknown.map(({ from, to }) => `the tags of ${from} and ${to} do not tell which is newer`),
  ];
}

function repositoryOf(image: string): string {
  return image.replace(/(?::[^:/]*)?(?:@.*)?$/, '');
}

/** Returns the tag of an image if it begins with a number; undefined otherwise. */
function tagOf(image: string): string | undefined {
  return /:(v?\d[\w.-]*)$/.exec(image.replace(/@.*$/, ''))?.[1];
}
