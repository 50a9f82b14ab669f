import { dirname } from 'node:path';
import type { V1Container } from '@kubernetes/client-node';
import type { Json, KubernetesObject } from '#config/manifest';
import { fieldsOf, listOf, type Fields } from '#fields';
import { holdFile, mirrorFile, mountFolder, nodeStateFolder, pinFile, screenFolder, screenLinks } from '#node/machine';
import { agentPlacement } from '#readiness/nodes';
import { imageUnitName, mirrorUnitFile, mirrorUnitName } from '../mirror/mirrorUnit.ts';

/** The folders that agents and their programs leave on a node, in addition to the images. */
const leftFolders = [screenFolder, nodeStateFolder, dirname(mountFolder)];

/** Options of cleaning up nodes. */
export interface CleanupOptions {
  /** Also remove our list of images that CRI-O pins. */
  readonly removePins: boolean;
}

/**
 * Returns the script that runs on a node in place of its agent. It removes everything except the images and, unless
 * `removePins`, their pins. It reloads CRI-O if that changed its configuration, and then waits to be stopped. It
 * touches no mounted medium.
 */
function cleanScript({ removePins }: CleanupOptions): string {
  return `for file in ${[mirrorFile, holdFile, ...(removePins ? [pinFile] : [])].map((file) => `/host${file}`).join(' ')}; do
  [ -e "$file" ] || continue
  rm -f "$file"
  changed=yes
done
for unit in ${mirrorUnitName} ${imageUnitName}; do
  [ -e "/host${dirname(mirrorUnitFile)}/$unit" ] || continue
  chroot /host systemctl disable --now "$unit"
  rm -f "/host${dirname(mirrorUnitFile)}/$unit"
  chroot /host systemctl daemon-reload
done
[ -z "$changed" ] || chroot /host systemctl reload crio
rm -f ${Object.values(screenLinks)
    .map((link) => `/host${link}`)
    .join(' ')}
if [ -e /host${screenFolder} ]; then
  rm -rf /host${screenFolder}
  chroot /host agetty --reload
fi
until ${leftFolders.map((folder) => `{ rm -rf --one-file-system /host${folder} || ${isEmptyMount(folder)}; }`).join(' && ')}; do
  sleep 5
done
exec sleep infinity
`;
}

/**
 * Returns the test whether a folder is an empty mount point. The folder stays, because the administrator mounted a disk
 * there.
 */
function isEmptyMount(folder: string): string {
  return `{ mountpoint -q /host${folder} && [ -z "$(ls -A /host${folder})" ]; }`;
}

/**
 * Returns the DaemonSet that cleans up after the agents. It has the name and the image of the agents’ DaemonSet, so
 * that the agents end first.
 */
export function cleaningSet(agents: KubernetesObject, options: CleanupOptions): KubernetesObject {
  const spec = fieldsOf(agents['spec']);
  const template = fieldsOf(spec['template']);
  const pod = fieldsOf(template['spec']);
  const [container] = listOf(pod['containers']);
  const isClean = leftFolders.map((folder) => `{ [ ! -e /host${folder} ] || ${isEmptyMount(folder)}; }`).join(' && ');
  const cleaner: Fields = {
    ...keep(container ?? {}, ['name', 'image', 'imagePullPolicy', 'resources', 'securityContext']),
    ...({
      command: ['/bin/bash', '-c', cleanScript(options)],
      readinessProbe: { exec: { command: ['/bin/bash', '-c', isClean] }, periodSeconds: 2 },
      volumeMounts: [{ name: 'host', mountPath: '/host', mountPropagation: 'HostToContainer' }],
    } satisfies Partial<Json<V1Container>>),
  };
  const volumes = listOf(pod['volumes']).filter(({ name }) => name === 'host');
  return {
    apiVersion: agents.apiVersion,
    kind: agents.kind,
    metadata: keep(agents.metadata, ['name', 'namespace', 'labels']) as KubernetesObject['metadata'],
    spec: {
      ...keep(spec, ['selector', 'updateStrategy']),
      template: {
        metadata: keep(fieldsOf(template['metadata']), ['labels', 'annotations']),
        spec: {
          ...agentPlacement,
          ...keep(pod, ['serviceAccountName', 'priorityClassName', 'hostPID', 'tolerations']),
          terminationGracePeriodSeconds: 1,
          containers: [cleaner],
          volumes,
        },
      },
    },
  };
}

function keep(fields: Readonly<Record<string, unknown>>, names: readonly string[]): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => names.includes(name)));
}
