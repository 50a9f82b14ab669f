import type { KubernetesObject } from '../config/manifest.ts';
import { mirrorFile } from '../node/mirror.ts';
import { pinFile } from '../node/pins.ts';
import { stateFolder } from './agentStart.ts';
import { fieldsOf, listOf, type Fields } from './fields.ts';

/** What agents and their programs leave on a node, besides the images themselves. */
const leftFolders = [stateFolder, '/run/oc-upgrade-bundle', '/run/oc-adm-upgrade-bundle'];

/**
 * What runs on a node in place of its agent: removes everything but the images, lets the container runtime know that nothing is pinned by us any more, and stays until it is
 * told to go. Nothing on a medium that may still be mounted there is touched.
 */
export const cleanScript = `if [ -e /host${pinFile} ] || [ -e /host${mirrorFile} ]; then
  rm -f /host${pinFile} /host${mirrorFile}
  chroot /host systemctl reload crio
fi
until rm -rf --one-file-system ${leftFolders.map((folder) => `/host${folder}`).join(' ')}; do
  sleep 5
done
exec sleep infinity
`;

/** Makes of the DaemonSet of the agents one that cleans up after them, with the same name and the same image: so the agents end first. */
export function cleaningSet(agents: KubernetesObject): KubernetesObject {
  const spec = fieldsOf(agents['spec']);
  const template = fieldsOf(spec['template']);
  const pod = fieldsOf(template['spec']);
  const [container] = listOf(pod['containers']);
  const isClean = leftFolders.map((folder) => `[ ! -e /host${folder} ]`).join(' && ');
  const cleaner: Fields = {
    ...keep(container ?? {}, ['name', 'image', 'imagePullPolicy', 'resources', 'securityContext']),
    command: ['/bin/bash', '-c', cleanScript],
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
