import { PluginError } from '../../errors.ts';
import type { CertificateStatus } from '../certificates/certificates.ts';
import type { Installation, ReleaseComponent } from '../installation.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { valuesOf, type PodmanCommand } from '../detect/podmanCommand.ts';
import type { RenewalNeed } from '../certificates/renewal.ts';
import { redisSecret } from './secrets.ts';
import { splice, type Edit, type UnitFile } from '../detect/units.ts';
import { compareTags, mirrorRegistryVersion, quayVersionOf } from '../versions.ts';
import type { ImageChange, TargetImages } from '../releases/images.ts';

/** What is known of a registry, for a plan. */
export interface PlanInput {
  readonly detected: DetectedInstallation;
  readonly certificates: CertificateStatus;
  readonly renewals: RenewalNeed;
  /** As `listImageChanges` finds them. */
  readonly images: readonly ImageChange[];
  /** Images that have the name they are to have, and may be others: podman was not asked. */
  readonly unknown: readonly string[];
  /** A certificate that expires within so many days needs attention. */
  readonly renewBefore: number;
}

/** A unit file that is to have other bytes, as text. */
export interface UnitChange {
  readonly path: string;
  readonly before: string;
  readonly after: string;
  /** What changes in it, one phrase each. */
  readonly reasons: readonly string[];
}

/** What an upgrade would do, in the order in which it does it. Plain data, the same for the same host and target. */
export interface UpgradePlan {
  /** The release of the mirror registry before and after, where it is one. */
  readonly from: string | undefined;
  readonly to: string | undefined;
  /** `minor` where Quay gets another minor version. */
  readonly level: 'none' | 'certificates' | 'patch' | 'minor';
  readonly images: readonly ImageChange[];
  readonly units: readonly UnitChange[];
  readonly certificates: RenewalNeed;
  /** The units that have to be started again, in that order. */
  readonly restart: readonly string[];
  /** What keeps it from being done, one sentence each. */
  readonly blockers: readonly string[];
  readonly warnings: readonly string[];
  /** What an administrator has to do soon, because no upgrade can, one sentence each. */
  readonly due: readonly string[];
}

const components = ['pause', 'redis', 'quay'] as const;

const sitePackages = 'PYTHONUSERBASE_SITE_PACKAGE=/opt/app-root/lib/python3.12/site-packages';

/**
 * Plans an upgrade: which images, which words of which units, which certificates. A pure function of what was found; nothing is read and
 * nothing written. A host that has what it is to have gives a plan without changes.
 */
export function planUpgrade({
  detected,
  certificates,
  renewals,
  images,
  unknown,
  renewBefore,
}: PlanInput): UpgradePlan {
  const { installation } = detected;
  const units = listUnitChanges(detected, images);
  const changed = new Set(images.map(({ component }) => component));
  const hasPod = detected.units.has('quay-pod');
  const restart = [
    ...(changed.has('pause') && hasPod ? ['quay-pod'] : []),
    ...(changed.has('pause') || changed.has('redis') ? ['quay-redis'] : []),
    ...(changed.size > 0 || renewals.server.length > 0 ? ['quay-app'] : []),
  ];
  const quay = images.find(({ component }) => component === 'quay');
  const quayVersion = quayVersionOf(quay?.to ?? '');
  return {
    from: installation.version,
    to: quay ? quayVersion && mirrorRegistryVersion(quayVersion) : installation.version,
    level: levelOf(images, renewals),
    ...{ images, units, certificates: renewals, restart },
    blockers: [...listBlockers(installation, images), ...certificateBlockers(certificates, installation, renewals)],
    warnings: [
      ...installation.remarks,
      ...listWarnings(images),
      ...unknown.map((image) => `podman may hold another image as ${image}: it was not asked`),
    ],
    due: listDue(certificates, renewals, renewBefore),
  };
}

/** Which images of an installation change: those that get another name, and those of `respun`, which get another content. */
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

/** Tells whether a plan changes nothing. */
export function isUpToDate({ images, units, certificates }: UpgradePlan): boolean {
  return images.length + units.length + certificates.server.length + certificates.authority.length === 0;
}

/** Throws `unsupported` with all that keeps a plan from being carried out. */
export function requireFeasible({ blockers }: UpgradePlan): void {
  const [first, ...others] = blockers;
  if (first === undefined) return;
  throw new PluginError('unsupported', [first, ...others].join('; '), {
    hint: 'Nothing was changed. The guide to upgrading a mirror registry says what to do about it.',
  });
}

function levelOf(images: readonly ImageChange[], renewals: RenewalNeed): UpgradePlan['level'] {
  if (images.length === 0) return renewals.server.length > 0 ? 'certificates' : 'none';
  const minor = (image: string): string => (quayVersionOf(image) ?? image).split('.').slice(0, 2).join('.');
  return images.some(({ component, from, to }) => component === 'quay' && minor(from) !== minor(to))
    ? 'minor'
    : 'patch';
}

function listUnitChanges(detected: DetectedInstallation, images: readonly ImageChange[]): UnitChange[] {
  const edits = new Map<string, { file: UnitFile; edits: Edit[]; reasons: string[] }>();
  const add = (file: UnitFile, edit: Edit, reason: string): void => {
    const found = edits.get(file.path) ?? { file, edits: [], reasons: [] };
    found.edits.push(edit);
    found.reasons.push(reason);
    edits.set(file.path, found);
  };
  for (const { component, from, to } of images) {
    const command = detected.commands[component];
    const word = component === 'pause' ? valuesOf(command, 'infra-image')[0]?.word : command?.image;
    if (!command || !word) continue;
    const text = word.text.startsWith('--infra-image=') ? `--infra-image=${to}` : to;
    if (from !== to) add(command.setting.file, { start: word.start, end: word.end, text }, `the image of ${component}`);
    const mends =
      component === 'quay'
        ? listRequiredUnitFixes(command, to)
        : component === 'redis'
          ? listRequiredRedisFixes(command)
          : [];
    for (const [edit, reason] of mends) add(command.setting.file, edit, reason);
  }
  return [...edits.values()].map(({ file, edits: found, reasons }) => {
    return { path: file.path, before: file.text, after: splice(file.text, found), reasons };
  });
}

/** What newer versions of Quay need besides, and installers of their time write. */
function listRequiredUnitFixes(command: PodmanCommand, to: string): [Edit, string][] {
  const mends: [Edit, string][] = [];
  const { image, command: words } = command;
  for (const { value, word } of valuesOf(command, 'volume')) {
    const flags = /^[^:]+:\/sqlite(?::([A-Za-z,]*))?$/.exec(value);
    if (!flags || flags[1]?.split(',').includes('U')) continue;
    const text = `${word.text}${flags[1] === undefined ? ':' : ','}U`;
    mends.push([{ start: word.start, end: word.end, text }, 'U on the database’s volume, which podman 5 needs']);
  }
  const version = quayVersionOf(to);
  const has = valuesOf(command, 'env').some(({ value }) => value.startsWith('PYTHONUSERBASE_SITE_PACKAGE='));
  if (image && !has && version !== undefined && compareTags(version, '3.12.14') >= 0) {
    const edit = { start: image.start, end: image.start, text: `-e ${sitePackages} ` };
    mends.push([edit, 'PYTHONUSERBASE_SITE_PACKAGE, which Quay needs from 3.12.14 on']);
  }
  const [verb] = words;
  if (verb?.text === 'registry-nomigrate') {
    mends.push([{ start: verb.start, end: verb.end, text: 'registry' }, 'registry, which migrates the database']);
  }
  return mends;
}

/** A password on a command line is seen by everybody who lists processes; later installers keep it in a secret. */
function listRequiredRedisFixes({ options }: PodmanCommand): [Edit, string][] {
  const given = options.find(({ name, value }) => name === 'env' && value?.startsWith('REDIS_PASSWORD='));
  const [first] = given?.words ?? [];
  const last = given?.words.at(-1);
  if (!first || !last) return [];
  const edit = { start: first.start, end: last.end, text: `--secret=${redisSecret},type=env,target=REDIS_PASSWORD` };
  return [[edit, 'the password in a secret instead of the command line']];
}

function listBlockers({ database, version, images: present }: Installation, images: readonly ImageChange[]): string[] {
  const { postgres } = present;
  return [
    ...(images.length > 0 && database === 'postgres'
      ? [
          `this registry${version === undefined ? '' : `, ${version},`} keeps its database in PostgreSQL${postgres ? ` (${postgres.file}:${postgres.line})` : ''}, and later ones have none: it has to be upgraded to 2.0 by the mirror-registry program of that version, which migrates the database`,
        ]
      : []),
    ...images.flatMap(({ component, from, to }) => {
      const [old, fresh] = [tagOf(from), tagOf(to)];
      if (old === undefined || fresh === undefined || compareTags(old, fresh) <= 0) return [];
      return component === 'quay' ? [`${to} is older than ${from}: a database does not go back`] : [];
    }),
  ];
}

function certificateBlockers(
  { kind, problems, hasKey }: CertificateStatus,
  { host }: Installation,
  { server, key }: RenewalNeed,
): string[] {
  // What is renewed is renewed on its own key.
  if (kind === 'automatic' && !hasKey && key.length === 0)
    return [`${problems.join(', ')}: --rotate-key makes a new key`];
  // What is about to be renewed, or replaced by somebody’s own, keeps nobody away.
  if (kind === 'automatic' || kind === 'external' || server.length > 0 || problems.length === 0) return [];
  return [`clients cannot reach ${host.value}: ${problems.join(', ')}`];
}

/** Certificates that this program does not renew, and that expire soon. */
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
  return [`${server.file} ${when}, and is not renewed by this program: install a new one with certs renew --ssl-cert`];
}

function listWarnings(images: readonly ImageChange[]): string[] {
  const unknown = images.filter(({ from, to }) => tagOf(from) === undefined || tagOf(to) === undefined);
  return [
    ...images
      .filter(({ from, to }) => repositoryOf(from) !== repositoryOf(to))
      .map(({ from, to }) => `${to} is from another repository than ${from}`),
    ...unknown.map(({ from, to }) => `which of ${from} and ${to} is newer cannot be told from their tags`),
  ];
}

function repositoryOf(image: string): string {
  return image.replace(/(?::[^:/]*)?(?:@.*)?$/, '');
}

/** The tag of an image as numbers can be read from it; undefined for an image by digest, or without one. */
function tagOf(image: string): string | undefined {
  return /:(v?\d[\w.-]*)$/.exec(image.replace(/@.*$/, ''))?.[1];
}
