import { subjectOf, type Finding, type Weight } from '#cluster/finding';
import type { StoredObject } from '#cluster/objects';
import { blocks } from '#cluster/version';
import { parseReference } from '#content/oci';
import type { MirrorSets } from '#content/registry';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import { describeContainers, type Container } from '../lint/container.ts';
import { normalizeImage } from '../lint/image.ts';
import type { LintReport } from '../lint/lint.ts';
import { problemOf, type Rule } from '../lint/report.ts';
import { allRules, imageByTag, pullAlways, pullLatest, unreadable } from '../lint/rules.ts';
import { isPlatformPod, isReleaseImage, keyOf, type PodTemplate } from './podTemplate.ts';

const advice = {
  policy:
    'Set imagePullPolicy: IfNotPresent in the controller that creates the pods; a pod that must always pull does not ' +
    'start without a registry.',
  idle: 'Set imagePullPolicy: IfNotPresent before it restarts.',
  payload:
    'The release brings it like this: keep a registry that has the image until the update is over, or take ' +
    'another release.',
  tag: 'Name the image by digest: what a tag means is only known to a registry, and no bundle or pin holds it.',
};

/** What decides whether a pod that pulls at every start gets its image. */
export interface PullSupply {
  /** The release image of the running release, if it is known. */
  readonly release: string | undefined;
  /** The mirrors of the site. */
  readonly mirrors: MirrorSets;
}

/**
 * Finds containers of live workloads that pull at every start, or whose image is named by a tag. Names only the topmost
 * owner that states it. A workload of the running release blocks if no mirror of the site may give its image; another
 * one warns, because the update does not wait for it.
 */
export function checkWorkloads(templates: readonly PodTemplate[], supply: PullSupply): Finding[] {
  const templatesByKey = new Map(templates.map((template) => [keyOf(template.subject), template]));
  return templates.flatMap((template) => {
    const owner = template.owner === undefined ? undefined : templatesByKey.get(template.owner);
    // Earlier revisions of a deployment stay as empty replica sets.
    if (owner && template.idle) return [];
    const own = (isBad: (container: Container) => boolean): Container[] =>
      template.containers.filter((container) => isBad(container) && !owner?.containers.some(like(container, isBad)));
    const { subject, idle } = template;
    const find = (rule: Rule<Container>, weight: Weight, bad: readonly Container[], advised: string): Finding[] => {
      const images = [...new Set(bad.map(({ image }) => image))].join(', ');
      const message = describeContainers(bad, problemOf(rule, images));
      return bad.length === 0 ? [] : [{ check: rule.check, ...weight, subject, message, advice: advised }];
    };
    const isPlatform = isPlatformPod({ metadata: { ...subject, labels: template.labels as Record<string, string> } });
    const pulling = own(pullsAlways);
    const isCertain = isPlatform && pulling.some((container) => isOnlyThere(container, supply));
    const warns: Weight = { severity: idle ? 'info' : 'warning' };
    const stops: Weight = { severity: 'blocker', because: pullAlways.why };
    const tagged: Weight = { severity: isPlatform && !idle ? 'warning' : 'info' };
    return [
      ...find(pullAlways, isCertain && !idle ? stops : warns, pulling, idle ? advice.idle : advice.policy),
      ...find(
        imageByTag,
        tagged,
        own((container) => breaks(imageByTag, container)),
        advice.tag,
      ),
    ];
  });
}

/** Returns whether a container is of the release, and no mirror of the site has its image. */
function isOnlyThere({ image }: Container, { release, mirrors }: PullSupply): boolean {
  if (!isReleaseImage(image, release)) return false;
  try {
    return mirrors.locationsOf(parseReference(image)).length < 2;
  } catch {
    return true;
  }
}

/**
 * Reports the findings in the manifests of the release that the cluster is to run. With a mirror of the site they only
 * warn: what asks a registry gets an answer there.
 */
export function checkManifests({ findings }: LintReport, version: string, mirrored: boolean): Finding[] {
  const rules = new Map(allRules.map((rule) => [rule.id, rule]));
  return findings.map(({ rule, severity, object, file, message }): Finding => {
    const { check = 'bundle', why = message } = rules.get(rule) ?? {};
    // The version operator of the cluster may still read what is unreadable here.
    const isCertain = severity === 'blocker' && rule !== unreadable.id && !mirrored;
    const weight: Weight = isCertain
      ? { severity: 'blocker', because: why }
      : { severity: severity === 'info' ? 'info' : 'warning' };
    return {
      check,
      ...weight,
      subject: object,
      message: `${version} brings it (${file}), and ${message}`,
      advice: advice.payload,
    };
  });
}

function pullsAlways(container: Container): boolean {
  return [pullAlways, pullLatest].some((rule) => breaks(rule, container));
}

function breaks(rule: Rule<Container>, container: Container): boolean {
  return rule.find(container).length > 0;
}

function like(container: Container, isBad: (container: Container) => boolean) {
  return (other: Container): boolean => other.name === container.name && isBad(other);
}

const failedAdvice = {
  load:
    'Load the image into the image store of the node, or make its registry reachable: the pod does not start ' +
    'before.',
  bundle: 'Nothing: the bundle has the image, and agents load it.',
};

/** The states of a container whose image the kubelet could not pull (Kubernetes, pkg/kubelet/images/types.go). */
const pullFailures = [
  'ErrImagePull',
  'ImagePullBackOff',
  'ImageInspectError',
  'RegistryUnavailable',
  'ErrImageNeverPull',
];

/**
 * Finds pods that cannot pull an image now. A pod of the running release blocks, unless the bundle has its image;
 * others warn. `release`: the release image. `bundled`: the images of the bundle.
 */
export function checkFailedPulls(
  workloads: readonly StoredObject[],
  release: string | undefined,
  bundled: readonly string[],
): Finding[] {
  const brought = new Set(bundled);
  return workloads.flatMap((pod): Finding[] => {
    if (pod.kind !== 'Pod') return [];
    const { containerStatuses, initContainerStatuses } = fieldsOf(pod['status']);
    const waiting = [...listOf(initContainerStatuses), ...listOf(containerStatuses)].flatMap(
      ({ image, state, name }) => {
        const { reason, message } = fieldsAt(state, 'waiting');
        return pullFailures.includes(String(reason))
          ? [{ image: textOf(image) ?? '', reason: String(reason), name, message }]
          : [];
      },
    );
    const [first] = waiting;
    if (!first) return [];
    const image = normalizeImage(specImageOf(pod, String(first.name)) ?? first.image);
    const isBrought = brought.has(image);
    const isOfRelease = isPlatformPod(pod) && isReleaseImage(image, release);
    const why = textOf(first.message);
    const message = `cannot pull ${image} (${first.reason}${why === undefined ? '' : `: ${why}`})`;
    const weight = isOfRelease && !isBrought ? blocks('missingImage') : ({ severity: 'warning' } as const);
    return [
      {
        check: 'images',
        ...weight,
        subject: subjectOf(pod),
        message,
        advice: isBrought ? failedAdvice.bundle : failedAdvice.load,
      },
    ];
  });
}

/** Returns the image that a pod names for a container. Its status may have another name of the same image. */
function specImageOf({ spec }: StoredObject, name: string): string | undefined {
  const { containers, initContainers } = fieldsOf(spec);
  const container = [...listOf(containers), ...listOf(initContainers)].find((each) => each['name'] === name);
  return textOf(container?.['image']);
}
