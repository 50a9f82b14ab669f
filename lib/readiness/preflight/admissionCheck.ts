import type { Cluster } from '#cluster/client';
import { type Finding, type Weight, subjectOf } from '#cluster/finding';
import { blocks } from '#cluster/version';
import type { Written, KubernetesObject } from '#config/manifest';
import { asFailure, ignoreFailure } from '#errors';
import { fieldsOf, listOf, type Fields, fieldsAt, textOf } from '#fields';
import { problemOf } from '../lint/report.ts';
import { forcesPulls } from '../lint/rules.ts';

const advice = {
  always:
    'Take AlwaysPullImages out of enable-admission-plugins (oc get kubeapiserver cluster -o yaml), or see which ' +
    'mutating webhook does it (oc get mutatingwebhookconfigurations).',
  rewritten:
    'Exclude OpenShift’s namespaces, or these images, from the webhook or policy that does it (oc get ' +
    'mutatingwebhookconfigurations,mutatingadmissionpolicies): nodes have the images under their own names only.',
  unknown: 'Make sure that the admission plugin AlwaysPullImages is off: with it no pod starts without a registry.',
};

/**
 * Checks whether the cluster makes every pod pull its images, as the admission plugin AlwaysPullImages does. Creates
 * pods in a dry run, which keeps nothing, and compares their pull policy. So the check finds every admission plugin,
 * and needs no right to read its configuration. Also finds webhooks and policies that change the images of pods. Only
 * what happens to pods of the platform blocks, and only without a mirror that could give the images (`mirrored`).
 */
export async function checkPullAdmission(cluster: Cluster, mirrored = false): Promise<Finding[]> {
  const subject = { kind: 'Pod', name: '*' };
  try {
    const ours = readContainer(await cluster.create(probe, { dryRun: true }));
    const platform = await probePlatform(cluster);
    const { check, why } = forcesPulls;
    const isForced = ours['imagePullPolicy'] === 'Always';
    const blocksPlatform = !mirrored && (platform ?? ours)['imagePullPolicy'] === 'Always';
    const weight: Weight = blocksPlatform ? { severity: 'blocker', because: why } : { severity: 'warning' };
    const always = `the cluster ${problemOf(forcesPulls, 'AlwaysPullImages, or a webhook')}`;
    return [
      ...(isForced || blocksPlatform ? [{ check, ...weight, subject, message: always, advice: advice.always }] : []),
      ...findRewritten(ours['image'], { severity: 'warning' }, probe.metadata.namespace),
      ...(platform ? findRewritten(platform['image'], blocks('rewrittenImage'), platformNamespace) : []),
    ];
  } catch (error) {
    const message = `whether the cluster makes every pod pull its images cannot be told: ${asFailure(error).message}`;
    return [{ check: 'pull-policy', severity: 'info', subject, message, advice: advice.unknown }];
  }
}

function readContainer({ spec }: Fields): Fields {
  return listOf(fieldsOf(spec)['containers'])[0] ?? {};
}

function findRewritten(image: unknown, weight: Weight, namespace: string): Finding[] {
  if (image === probeImage) return [];
  const message = `the cluster changes the images of new pods in ${namespace}: ${probeImage} becomes ${String(image)}`;
  return [
    {
      check: 'admission',
      ...weight,
      subject: { kind: 'Pod', name: '*', namespace },
      message,
      advice: advice.rewritten,
    },
  ];
}

const platformNamespace = 'openshift-machine-config-operator';

/** Creates the pod in a dry run where the pods of OpenShift are. Undefined if that is not allowed. */
async function probePlatform(cluster: Cluster): Promise<Fields | undefined> {
  const own = { ...probe, metadata: { ...probe.metadata, namespace: platformNamespace } };
  const made = await cluster.create(own, { dryRun: true }).catch(ignoreFailure);
  return made && readContainer(made);
}

/** The name of the pod that preflight creates in a dry run. Our own policies ignore it. */
export const probeName = 'oc-disconnected-preflight';

const probeImage = `quay.io/openshift-release-dev/ocp-release@sha256:${'0'.repeat(64)}`;

const probe = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: probeName, namespace: 'default' },
  spec: {
    restartPolicy: 'Never',
    // Meets the strictest pod security standard.
    securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
    containers: [
      {
        name: 'probe',
        image: probeImage,
        imagePullPolicy: 'IfNotPresent',
        securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
      },
    ],
  },
} as const satisfies Written<'Pod'>;

/** The DaemonSet whose image agents and controllers use. Every node has that image, and every bundle has it. */
export const machineConfigDaemon = {
  apiVersion: 'apps/v1',
  kind: 'DaemonSet',
  metadata: { name: 'machine-config-daemon', namespace: 'openshift-machine-config-operator' },
} as const;

const agents = { name: 'agent', namespace: 'oc-upgrade-bundle' };

/** Returns the image of the container that has the name of its DaemonSet; undefined if there is none. */
export function readDaemonImage({ metadata, spec }: KubernetesObject): string | undefined {
  const { template } = fieldsOf(spec);
  const containers = listOf(fieldsAt(template, 'spec')['containers']);
  return textOf(containers.find(({ name }) => name === metadata.name)?.['image']);
}

/** Finds agents whose image the machine config daemon no longer uses. Nothing keeps such an image on the nodes. */
export function checkAgentImage(workloads: readonly KubernetesObject[]): Finding[] {
  const find = (name: string, namespace: string): KubernetesObject | undefined =>
    workloads.find(
      ({ kind, metadata }) => kind === 'DaemonSet' && metadata.name === name && metadata.namespace === namespace,
    );
  const set = find(agents.name, agents.namespace);
  const daemon = find(machineConfigDaemon.metadata.name, machineConfigDaemon.metadata.namespace);
  const daemonImage = daemon && readDaemonImage(daemon);
  if (!set || daemonImage === undefined || readDaemonImage(set) === daemonImage) return [];
  return [
    {
      check: 'images',
      severity: 'warning',
      subject: subjectOf(set),
      message: 'does not run in the image of the machine config daemon: a node that loses the old image has no agent',
      advice:
        'The controller fixes this (oc -n oc-upgrade-bundle logs daemonset/controller). If it does not, run ' +
        'install again with the same options.',
    },
  ];
}
