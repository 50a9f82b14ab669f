import { subjectOf, type Finding } from '#cluster/finding';
import type { KubernetesObject } from '#config/manifest';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';

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
        'The controller fixes this (oc -n oc-upgrade-bundle logs daemonset/controller). If it does not, run install again with the same options.',
    },
  ];
}
