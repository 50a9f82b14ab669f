import type { Finding, Severity } from '../../cluster/finding.ts';
import { describeContainers, type Container } from '../lint/container.ts';
import type { LintReport } from '../lint/lint.ts';
import { problemOf, type Rule } from '../lint/rule.ts';
import { allRules, imageByTag, pullAlways, pullLatest, unreadable } from '../lint/rules.ts';
import { keyOf, type PodTemplate } from './podTemplate.ts';

const advice = {
  policy:
    'Set imagePullPolicy: IfNotPresent in what makes the pods; a pod that must always pull does not start without a registry.',
  idle: 'Set imagePullPolicy: IfNotPresent before it restarts.',
  payload:
    'The release brings it like this: keep a registry that has the image until the update is over, or take another release.',
  tag: 'Name the image by digest: what a tag means is only known to a registry, and no bundle or pin holds it.',
};

/**
 * Finds containers of live workloads that pull at every start, or whose image is named by a tag. Names only the topmost
 * owner that states it. A workload of OpenShift itself is a blocker, another one is a warning.
 */
export function checkWorkloads(templates: readonly PodTemplate[]): Finding[] {
  const templatesByKey = new Map(templates.map((template) => [keyOf(template.subject), template]));
  return templates.flatMap((template) => {
    const owner = template.owner === undefined ? undefined : templatesByKey.get(template.owner);
    // Earlier revisions of a deployment stay as empty replica sets.
    if (owner && template.idle) return [];
    const own = (isBad: (container: Container) => boolean): Container[] =>
      template.containers.filter((container) => isBad(container) && !owner?.containers.some(like(container, isBad)));
    const { subject, idle } = template;
    const severity: Severity = idle ? 'info' : isCritical(template) ? 'blocker' : 'warning';
    const find = (rule: Rule<Container>, level: Severity, isBad: (each: Container) => boolean, advised: string) => {
      const bad = own(isBad);
      const images = [...new Set(bad.map(({ image }) => image))].join(', ');
      const message = describeContainers(bad, problemOf(rule, images));
      return bad.length === 0 ? [] : [{ check: rule.check, severity: level, subject, message, advice: advised }];
    };
    return [
      ...find(pullAlways, severity, pullsAlways, idle ? advice.idle : advice.policy),
      ...find(imageByTag, demote(severity), (container) => breaks(imageByTag, container), advice.tag),
    ];
  });
}

/** Reports the findings in the manifests of the release that the cluster is to run. */
export function checkManifests({ findings }: LintReport, version: string): Finding[] {
  const checks = new Map(allRules.map(({ id, check }) => [id, check]));
  return findings.map(({ rule, severity, object, file, message }) => ({
    // The version operator of the cluster may still read it.
    ...{
      check: checks.get(rule) ?? 'bundle',
      severity: rule === unreadable.id ? 'warning' : severity,
      subject: object,
    },
    message: `${version} brings it (${file}), and ${message}`,
    advice: advice.payload,
  }));
}

/** Returns whether a namespace is one of OpenShift’s own. */
function isPlatform(namespace: string | undefined): boolean {
  return /^(?:openshift|kube)-/.test(namespace ?? '');
}

// Excludes pods of catalogs: they have their own check, and a cluster boots without them.
function isCritical({ subject, labels }: PodTemplate): boolean {
  return isPlatform(subject.namespace) && labels['olm.catalogSource'] === undefined;
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

function demote(severity: Severity): Severity {
  return severity === 'blocker' ? 'warning' : 'info';
}
