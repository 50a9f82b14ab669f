import { subjectOf, type Finding, type Weight } from '#cluster/finding';
import { readClusterVersion, blocks } from '#cluster/version';
import type { KubernetesObject } from '#config/manifest';
import { fieldsAt, textOf } from '#fields';
import { isOlder, isSameMinor } from '#release/version';
import { findCondition, type ConditionRule } from './operatorCheck.ts';

/** The release to update to, and the versions from which its payload allows the update. */
export interface UpdateTarget {
  readonly version: string;
  readonly arch: string;
  /** The versions that can be updated to it; empty if the release does not state them. */
  readonly previous: readonly string[];
  /** The feature sets with which its clusters pin images; undefined if its manifests do not say. */
  readonly pinsIn?: readonly string[];
}

/** The ways in which nodes of a cluster get the images of a release. */
export interface ImageSupply {
  /** Whether mirrors are configured for release images. */
  readonly mirrored: boolean;
  /** Whether the cluster serves PinnedImageSet v1. */
  readonly pinsImages: boolean;
  /** The feature set if it is not the default, such as `TechPreviewNoUpgrade`; else undefined. */
  readonly featureSet: string | undefined;
}

/**
 * The first versions whose machine config operator takes the operating system of a node from the node’s own storage if
 * its pool has pinned images (updateLayeredOS, isPinnedImageSetConfigured). `preview`: with the feature gate
 * PinnedImages, which is enabled by default since 4.19.12 (openshift/api d37c9b385, release-4.19).
 */
const firstLocalSystem = { byDefault: '4.19.12-0', preview: '4.17.0-0' };

const advice = {
  busy:
    'Wait until the cluster version operator is done (oc adm upgrade), or fix what blocks it: nothing else is ' +
    'updated meanwhile.',
  failing: 'Check the message of the operator (oc adm upgrade), and fix that first.',
  upgradeable:
    'Read its message: it keeps the cluster at this minor version. Updates to later patch releases are possible.',
  path:
    'Take bundles of the versions in between, one after the other; inspect -o wide lists from which versions a ' +
    'bundle updates.',
  older: 'A cluster cannot go back to an earlier version: take a bundle of a later one.',
  same: 'There is nothing to update.',
  unknown: 'Check the update graph if there is a network: the release does not list them.',
  arch: 'Take the bundle for multi.',
  system:
    'Keep a registry within reach of the nodes until all pools are updated: the push and serve commands make one of ' +
    'the bundle. Without one, update to 4.19.12 or later only.',
  pins:
    'Pause the machine config pools until the cluster serves PinnedImageSet v1 and the images are pinned, then ' +
    'resume them.',
};

/**
 * Returns whether nodes that update to a release take its operating system from their own storage, if it has pinned
 * images. The manifests of the release decide, and its version only if they do not say.
 */
export function takesLocalSystem(
  { version, pinsIn }: Pick<UpdateTarget, 'version' | 'pinsIn'>,
  featureSet = 'Default',
): boolean {
  return pinsIn?.includes(featureSet) ?? !isOlder(version, firstLocalSystem.byDefault);
}

/** Checks the conditions of the cluster version operator. `target` is undefined if no update is planned. */
export function checkState(object: KubernetesObject, target: UpdateTarget | undefined): Finding[] {
  const { version } = readClusterVersion(object);
  const isMinor = target !== undefined && !isSameMinor(target.version, version);
  const keep: Weight = isMinor ? blocks('upgradeable') : { severity: target ? 'info' : 'warning' };
  const rules: readonly ConditionRule[] = [
    ['Available', 'False', blocks('failing'), 'is not available', advice.failing],
    ['Failing', 'True', blocks('failing'), 'fails', advice.failing],
    ['Progressing', 'True', blocks('underWay'), 'is being updated', advice.busy],
    ['ReleaseAccepted', 'False', { severity: 'warning' }, 'did not accept a release', advice.failing],
    ['Upgradeable', 'False', keep, 'must not be updated to another minor version', advice.upgradeable],
  ];
  return rules.flatMap((rule) => findCondition(object, 'version', rule));
}

/** Checks whether the cluster’s version can update to the target, and what the update requires. */
export function checkPath(object: KubernetesObject, target: UpdateTarget, supply: ImageSupply): Finding[] {
  const { version, desired, multi } = readClusterVersion(object);
  const find = (check: 'path' | 'version', weight: Weight, message: string, advised: string): Finding => ({
    check,
    ...weight,
    subject: subjectOf(object),
    message,
    advice: advised,
  });
  const asked = textOf(fieldsAt(object, 'spec', 'desiredUpdate')['version']);
  if (target.version === version)
    return [
      find('path', { severity: 'info' }, `runs ${version} already, which is the version of the bundle`, advice.same),
    ];
  if (isOlder(target.version, version))
    return [find('path', blocks('path'), `runs ${version}, which is later than ${target.version}`, advice.older)];
  const unknown = `runs ${version}; ${target.version} does not say from which versions it can be reached`;
  const unreachable = `runs ${version}, from which there is no update to ${target.version}: only from ${nearest(target.previous)}`;
  const isReachable = target.previous.includes(version);
  return [
    ...(asked !== undefined && asked !== desired
      ? [find('version', blocks('underWay'), `was asked to update to ${asked}`, advice.busy)]
      : []),
    ...(target.previous.length === 0 ? [find('path', { severity: 'warning' }, unknown, advice.unknown)] : []),
    ...(target.previous.length > 0 && !isReachable ? [find('path', blocks('path'), unreachable, advice.path)] : []),
    ...(multi && target.arch !== 'multi'
      ? [
          find(
            'path',
            blocks('architecture'),
            `is for several architectures, and the bundle is for ${target.arch}`,
            advice.arch,
          ),
        ]
      : []),
    ...checkSystem(version, target, supply).map(([weight, message, advised]) =>
      find('version', weight, message, advised),
    ),
  ];
}

function checkSystem(
  version: string,
  target: UpdateTarget,
  { mirrored, pinsImages, featureSet }: ImageSupply,
): (readonly [Weight, message: string, advised: string])[] {
  const warns = { severity: 'warning' } as const;
  if (!takesLocalSystem(target, featureSet)) {
    const what =
      `nodes fetch the operating system of ${target.version} from a registry, even if they have its image: only ` +
      '4.19.12 and later take it from their own storage';
    if (featureSet !== undefined && !isOlder(target.version, firstLocalSystem.preview))
      return [[warns, `${what}; ${featureSet} may change that`, advice.system]];
    if (mirrored) return [[warns, `${what}; the configured mirrors must answer during the update`, advice.system]];
    return [[blocks('systemFromRegistry'), what, advice.system]];
  }
  if (pinsImages) return [];
  const unpinned =
    `runs ${version}, which cannot pin images yet: an update to ${target.version} without a registry needs ` +
    'pinned images';
  return [[warns, unpinned, advice.pins]];
}

/** Returns the last versions of a list, at most three, the latest first. */
function nearest(previous: readonly string[]): string {
  const sorted = previous.toSorted((a, b) => (isOlder(a, b) ? 1 : -1));
  const more = sorted.length > 3 ? ' and others' : '';
  return sorted.slice(0, 3).join(', ') + more;
}
