import { dirname } from 'node:path';
import type { V1Container } from '@kubernetes/client-node';
import { type ApplyOptions, deleteObjects } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { referenceOf, type ObjectReference, conditionsOf, formatObjectName } from '#cluster/objects';
import type { Json, KubernetesObject } from '#config/manifest';
import { type Context, awaitDone, type WaitOptions } from '#context';
import { ignoring, PluginError } from '#errors';
import { fieldsOf, listOf, type Fields } from '#fields';
import { holdFile, mirrorFile, mountFolder, nodeStateFolder, pinFile, screenFolder, screenLinks } from '#node/machine';
import { listOwnSets, agentPlacement } from '#readiness/nodes';
import { shellCommand } from '#text';
import { restoreNodeChanges, restorePools } from '../controller/pauses.ts';
import { removeMirror } from '../mirror/mirrorInstallation.ts';
import { imageUnitName, mirrorUnitFile, mirrorUnitName } from '../mirror/mirrorUnit.ts';
import { listRecords } from '../record/bundleRecord.ts';
import { hasEnded, phaseOf } from '../record/upgradeBundle.ts';
import { reportKeySecret, reportMap } from '../report/reportKey.ts';
import { agentObjects, tokenSecret } from './agentObjects.ts';
import { agentSet, controllerSet, surveyAgents } from './agentSurvey.ts';
import { removeRetention } from './retention.ts';

/** Options of an uninstallation. */
export interface UninstallOptions extends Pick<ApplyOptions, 'dryRun'> {
  /** Uninstall even if an update is running. */
  readonly force: boolean;
  /** Also remove PinnedImageSets and the lists of pinned images in CRI-O. Kubelets may then remove these images. */
  readonly removePins: boolean;
  /**
   * Time to wait for the nodes, the namespaces and the kind, in milliseconds. Undefined does not clean the nodes, and
   * does not wait.
   */
  readonly timeout: number | undefined;
  /** Pause between two checks, in milliseconds; default one second. */
  readonly interval?: number;
}

/**
 * Removes an installation: the agents and their files on the nodes, but no image; then every object with the
 * UpgradeBundles and, if requested, pins. Restores objects that a running update has paused. Returns the removed
 * objects. Throws `conflict` while an update runs, and `not-ready` with the nodes that are not clean or the object that
 * is not gone. A second run resumes.
 */
export async function uninstallAgents(
  cluster: Cluster,
  options: UninstallOptions,
  context: Context,
): Promise<readonly ObjectReference[]> {
  const { dryRun, timeout, interval = 1000 } = options;
  const bundles = (await listRecords(cluster).catch(ignoring('not-served', 'not-found'))) ?? [];
  const active = bundles.find((bundle) => !hasEnded(bundle) && phaseOf(bundle) !== 'Detected');
  if (active && !options.force) {
    throw new PluginError('conflict', `${active.metadata.name} is under way: ${phaseOf(active)}`, {
      hint:
        'Wait until it ends, or abort it: oc adm-upgrade-bundle abort. Forcing also restores what the update has ' +
        'paused.',
      settings: ['force'],
    });
  }
  // The nodes must not ask mirrors that are gone.
  const wait = timeout === undefined ? undefined : { timeout, interval };
  const mirrors = await removeMirror(cluster, { dryRun }, wait, context);
  // The controllers go first: they would pause restored objects again, and they run the executable
  // that is removed from the nodes.
  const controllers = await deleteObjects(cluster, [controllerSet], { dryRun }, context);
  if (dryRun === undefined && timeout !== undefined) await cleanNodes(cluster, { ...options, timeout }, context);
  const retention = options.removePins ? await removeRetention(cluster, options, wait, context) : [];
  const pins = options.removePins ? await listOwnSets(cluster) : [];
  // In reverse order, because earlier objects are needed by later ones. Fields do not matter for a deletion.
  const objects = agentObjects({
    image: '',
    executables: {},
    admission: 'warn',
    rules: false,
    reports: true,
  }).toReversed();
  const references = [
    ...pins,
    ...bundles,
    ...objects,
    { apiVersion: 'v1', kind: 'Secret', metadata: tokenSecret },
    reportKeySecret,
    reportMap,
  ];
  const ordered = references
    .filter((each) => !controllers.some((gone) => isSame(gone, each)))
    .toSorted((a, b) => rank(a) - rank(b));
  const gone = await deleteObjects(cluster, ordered.map(referenceOf), { dryRun }, context);
  // After the deletion, because a running controller would pause them again.
  if (dryRun === undefined) await restorePauses(cluster, context);
  if (dryRun === undefined && timeout !== undefined) {
    const slow = objects.filter(({ kind }) => kind === 'Namespace' || kind === 'CustomResourceDefinition');
    for (const each of slow) await awaitGone(cluster, referenceOf(each), { ...options, timeout }, context);
  }
  return [...mirrors, ...controllers, ...retention, ...gone].map(referenceOf);
}

function isSame(a: ObjectReference, b: ObjectReference): boolean {
  return a.kind === b.kind && a.metadata.name === b.metadata.name;
}

/** Returns the order of deletion: agents first, so that they do not react to the rest; the namespace last. */
function rank({ kind }: ObjectReference): number {
  return kind === 'DaemonSet' ? 0 : kind === 'Namespace' ? 2 : 1;
}

async function restorePauses(cluster: Cluster, context: Context): Promise<void> {
  const restored = [...(await restoreNodeChanges(cluster)), ...(await restorePools(cluster))];
  for (const object of restored) context.log('info', `restored ${formatObjectName(object)}`);
}

async function cleanNodes(
  cluster: Cluster,
  { removePins, ...wait }: WaitOptions & CleanupOptions,
  context: Context,
): Promise<void> {
  const agents = await cluster.read(agentSet);
  if (!agents) return;
  context.log('info', 'stopping the agents, and removing their files from the nodes');
  await cluster.apply(cleaningSet({ ...agents, ...agentSet }, { removePins }), { force: true });
  let said = false;
  const check = async (): Promise<PluginError | undefined> => {
    const { pods, complete, withoutAgent } = await surveyAgents(cluster);
    if (withoutAgent !== undefined && !said) context.log('info', `no agent ran on ${withoutAgent}`);
    said = true;
    if (complete) return undefined;
    const reasons = pods.filter(({ ready }) => !ready).map(({ node, reason }) => `${node}: ${reason}`);
    const words = reasons.join('; ') || 'their pods are not up to date';
    return new PluginError('not-ready', `cannot clean up some nodes: ${words}`, {
      hint:
        'Run it again when these nodes are healthy. Without waiting, /var/lib/oc-upgrade-bundle stays on the ' +
        'nodes.',
      settings: ['wait', 'timeout'],
    });
  };
  await awaitDone(check, wait, context);
}

/** Conditions of a definition that is not being deleted. */
const serving = ['NamesAccepted', 'Established'];

/** Waits until an object is gone that the cluster deletes after what it has. Finalizers may hold that. */
async function awaitGone(
  cluster: Cluster,
  reference: ObjectReference,
  wait: WaitOptions,
  context: Context,
): Promise<void> {
  const name = formatObjectName(reference);
  const check = async (): Promise<PluginError | undefined> => {
    const object = await cluster.read(reference);
    if (!object) return undefined;
    const reasons = [...conditionsOf(object)].filter(
      ([type, { status, message }]) => status === 'True' && message !== '' && !serving.includes(type),
    );
    const text = reasons.map(([, { message }]) => message).join(' ');
    return new PluginError('not-ready', `${name} is not gone yet. ${text}`.trim(), {
      hint: shellCommand`The cluster continues to remove it: oc get ${name} -o yaml says what it waits for.`,
    });
  };
  await awaitDone(check, wait, context);
}

/** The folders that agents and their programs leave on a node, in addition to the images. */
const leftFolders = [screenFolder, nodeStateFolder, dirname(mountFolder)];

/** Options of cleaning up nodes. */
interface CleanupOptions {
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
