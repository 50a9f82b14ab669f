import type { Finding, Severity } from '../kubernetes/finding.ts';
import { isByDigest, keyOf, type Container, type PodTemplate } from './podTemplate.ts';

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
  const known = new Map(templates.map((template) => [keyOf(template.subject), template]));
  return templates.flatMap((template) => {
    const owner = template.owner === undefined ? undefined : known.get(template.owner);
    // Earlier revisions of a deployment stay as empty replica sets.
    if (owner && template.idle) return [];
    const own = (isBad: (container: Container) => boolean): Container[] =>
      template.containers.filter((container) => isBad(container) && !owner?.containers.some(like(container, isBad)));
    const { subject, idle } = template;
    const severity: Severity = idle ? 'info' : isCritical(template) ? 'blocker' : 'warning';
    const always = own(pullsAlways);
    const tagged = own(isTagged);
    return [
      ...(always.length > 0
        ? [{ check: 'pull-policy' as const, severity, subject, ...describeAlways(always, idle) }]
        : []),
      ...(tagged.length > 0
        ? [{ check: 'tags' as const, severity: demote(severity), subject, ...describeTags(tagged) }]
        : []),
    ];
  });
}

/**
 * Checks the manifests of a release in the same way, because the cluster will run them. Findings have the file name.
 */
export function checkManifests(
  templates: readonly (PodTemplate & { readonly file: string })[],
  version: string,
): Finding[] {
  return templates.flatMap(({ subject, containers, file }): Finding[] => {
    const where = `${version} brings it (${file}), and `;
    const always = containers.filter(pullsAlways);
    const tagged = containers.filter(isTagged);
    return [
      ...(always.length > 0
        ? [
            {
              check: 'pull-policy' as const,
              severity: 'blocker' as const,
              subject,
              message: where + describeAlways(always, false).message,
              advice: advice.payload,
            },
          ]
        : []),
      ...(tagged.length > 0
        ? [
            {
              check: 'tags' as const,
              severity: 'warning' as const,
              subject,
              message: where + describeTags(tagged).message,
              advice: advice.payload,
            },
          ]
        : []),
    ];
  });
}

/** Returns whether a namespace is one of OpenShift’s own. */
function isPlatform(namespace: string | undefined): boolean {
  return /^(?:openshift|kube)-/.test(namespace ?? '');
}

// Excludes pods of catalogs: they have their own check, and a cluster boots without them.
function isCritical({ subject, labels }: PodTemplate): boolean {
  return isPlatform(subject.namespace) && labels['olm.catalogSource'] === undefined;
}

function pullsAlways({ policy }: Container): boolean {
  return policy === 'Always';
}

function isTagged({ image }: Container): boolean {
  return image !== '' && !isByDigest(image);
}

function like(container: Container, isBad: (container: Container) => boolean) {
  return (other: Container): boolean => other.name === container.name && isBad(other);
}

function demote(severity: Severity): Severity {
  return severity === 'blocker' ? 'warning' : 'info';
}

function describeAlways(containers: readonly Container[], idle: boolean): { message: string; advice: string } {
  const message = `${name(containers, 'pull')} from a registry at every start (imagePullPolicy: Always)`;
  return { message, advice: idle ? advice.idle : advice.policy };
}

function describeTags(containers: readonly Container[]): { message: string; advice: string } {
  const images = [...new Set(containers.map(({ image }) => image))].join(', ');
  return { message: `${name(containers, 'name')} an image by tag: ${images}`, advice: advice.tag };
}

/** Returns `container a pulls`, or `containers a, b pull`. */
function name(containers: readonly Container[], verb: string): string {
  const [first, second] = containers;
  if (first && !second) return `${first.kind} ${first.name} ${verb}s`;
  const kinds = new Set(containers.map(({ kind }) => kind));
  const names = containers.map(({ name: each, kind }) => (kinds.size === 1 ? each : `${each} (${kind})`));
  return `${kinds.size === 1 && first ? first.kind : 'container'}s ${names.join(', ')} ${verb}`;
}
