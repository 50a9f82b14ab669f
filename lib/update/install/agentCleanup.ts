import { dirname } from 'node:path';
import type { KubernetesObject } from '../../config/manifest.ts';
import { fieldsOf, listOf, type Fields } from '../../kubernetes/fields.ts';
import { mirrorFile, mountFolder, nodeStateFolder, pinFile, runFolder } from '../../machine/paths.ts';

/** What agents and their programs leave on a node, besides the images themselves. */
const leftFolders = [nodeStateFolder, runFolder, dirname(mountFolder)];

/** How thoroughly to clean up. */
export interface CleanupOptions {
  /** Also what keeps images on nodes that CRI-O pins by a list of ours. */
  readonly removePins: boolean;
}

/**
 * What runs on a node in place of its agent: removes everything but the images and, unless that is asked for, their pins; lets the container runtime know what has changed for it, and
 * stays until it is told to go. Nothing on a medium that may still be mounted there is touched.
 */
function cleanScript({ removePins }: CleanupOptions): string {
  return `for file in ${[mirrorFile, ...(removePins ? [pinFile] : [])].map((file) => `/host${file}`).join(' ')}; do
  [ -e "$file" ] || continue
  rm -f "$file"
  changed=yes
done
[ -z "$changed" ] || chroot /host systemctl reload crio
until ${leftFolders.map((folder) => `{ rm -rf --one-file-system /host${folder} || ${isEmptyMount(folder)}; }`).join(' && ')}; do
  sleep 5
done
exec sleep infinity
`;
}

/** A folder that is a mount point stays, empty: the administrator has mounted a disk there. */
function isEmptyMount(folder: string): string {
  return `{ mountpoint -q /host${folder} && [ -z "$(ls -A /host${folder})" ]; }`;
}

/** Makes of the DaemonSet of the agents one that cleans up after them, with the same name and the same image: so the agents end first. */
export function cleaningSet(agents: KubernetesObject, options: CleanupOptions): KubernetesObject {
  const spec = fieldsOf(agents['spec']);
  const template = fieldsOf(spec['template']);
  const pod = fieldsOf(template['spec']);
  const [container] = listOf(pod['containers']);
  const isClean = leftFolders.map((folder) => `{ [ ! -e /host${folder} ] || ${isEmptyMount(folder)}; }`).join(' && ');
  const cleaner: Fields = {
    ...keep(container ?? {}, ['name', 'image', 'imagePullPolicy', 'resources', 'securityContext']),
    command: ['/bin/bash', '-c', cleanScript(options)],
    readinessProbe: { exec: { command: ['/bin/bash', '-c', isClean] }, periodSeconds: 2 },
    volumeMounts: [{ name: 'host', mountPath: '/host', mountPropagation: 'HostToContainer' }],
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
