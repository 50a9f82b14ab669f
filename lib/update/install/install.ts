import { randomBytes } from 'node:crypto';
import type { KubernetesObject } from '../../config/manifest.ts';
import type { Context } from '../../context.ts';
import { isPluginError } from '../../errors.ts';
import { formerAccess } from './agentAccess.ts';
import { tokenSecret } from './agentObjects.ts';
import { startAgents, type StartupOptions } from './agentStartup.ts';
import type { ApplyOptions } from '../../kubernetes/apply.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import type { ObjectReference } from '../../kubernetes/discovery.ts';
import { checkImageRetention } from '../../preflight/imageRetention.ts';
import { planInstallation, type InstallationOptions } from './installation.ts';
import { installStore, type StoreChoice } from './storeInstallation.ts';
import { deleteObjects, applyObjects, type AppliedObject } from '../../kubernetes/serverSideApply.ts';

/** How to install. */
export interface InstallOptions extends InstallationOptions, ApplyOptions {
  /** How long to wait until agents run on every node; undefined not to wait, and not to bring them their executable. */
  readonly startup: StartupOptions | undefined;
  /** What to change on the nodes so that they keep their images, and how long to wait for that; by default nothing. */
  readonly store?: StoreChoice | undefined;
}

/** What an installation has done. */
export interface InstallResult {
  readonly objects: readonly AppliedObject[];
  /** What an earlier version had installed and is not needed any more; in a dry run, what would be removed. */
  readonly removed: readonly ObjectReference[];
  /** How many nodes have an agent that is ready; undefined where nobody waited. */
  readonly nodes?: number;
}

/**
 * Makes a cluster one that can update itself from bundles: applies the objects, makes the token of the agents where there is none, and brings
 * them their executable. What is there already stays; a second run changes nothing. Throws what planInstallation, installStore, stateObjects and startAgents do.
 */
export async function install(cluster: Cluster, options: InstallOptions, context: Context): Promise<InstallResult> {
  const objects = await planInstallation(cluster, options, context);
  const store = options.store ? await installStore(cluster, options, options.store, context) : [];
  if (!options.store) await warnOfLostImages(cluster, context);
  const sets = objects.filter(({ kind }) => kind === 'DaemonSet');
  const others = objects.filter((object) => !sets.includes(object));
  // The agents come last: their pods want the token.
  const stated = await applyObjects(cluster, others, options, context);
  const token = await makeToken(cluster, options);
  // What agents have in its place is there already.
  const removed = await deleteObjects(cluster, formerAccess, options, context);
  const agents = await applyObjects(cluster, sets, options, context).catch((error: unknown) => {
    // In a dry run there is no namespace for them yet.
    if (options.dryRun && isPluginError(error, 'not-found')) return sets.map(asCreated);
    throw error;
  });
  const all = [...store, ...stated, ...token, ...agents];
  if (options.dryRun || !options.startup) return { objects: all, removed };
  const { pods } = await startAgents(cluster, options.executables, options.startup, context);
  return { objects: all, removed, nodes: pods.length };
}

async function warnOfLostImages(cluster: Cluster, context: Context): Promise<void> {
  const [apiVersion, kind] = ['machineconfiguration.openshift.io/v1', 'MachineConfigPool'];
  // Hosted clusters have no pools.
  if (!(await cluster.findKind(apiVersion, kind))) return;
  const pools = await cluster.list(apiVersion, kind);
  const findings = await checkImageRetention(cluster, pools);
  const [first] = findings;
  if (!first) return;
  const names = findings.map(({ subject }) => subject.name).join(', ');
  context.log('warn', `pools ${names}: ${first.message}. ${first.advice}`);
}

/** Makes the Secret with the token, unless it is there: it is never replaced, since agents that run know the one that they have. */
async function makeToken(cluster: Cluster, { dryRun }: ApplyOptions): Promise<AppliedObject[]> {
  const reference = { apiVersion: 'v1', kind: 'Secret', metadata: tokenSecret };
  if (await cluster.read(reference)) return [{ object: reference, outcome: 'unchanged' }];
  const object = { ...reference, type: 'Opaque', stringData: { token: randomBytes(32).toString('hex') } };
  if (!dryRun) await cluster.create(object);
  // Whoever prints it prints no secret.
  return [asCreated(reference)];
}

function asCreated(object: KubernetesObject): AppliedObject {
  return { object, outcome: 'created' };
}
