import { type ApplyOptions, applyObjects, deleteObjects, type AppliedObject } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { describeFinding } from '#cluster/finding';
import type { ObjectReference, StoredObject } from '#cluster/objects';
import type { Written, KubernetesObject } from '#config/manifest';
import type { Context, WaitOptions } from '#context';
import { nameSome, PluginError } from '#errors';
import { fieldsAt, listOf, textOf } from '#fields';
import type { ImageConfig } from '#mirroring/mirror';
import { registriesFile } from '#node/machine';
import { readConfigFile } from '#readiness/nodes';
import { readPodTemplate } from '#readiness/preflight';
import type { MirrorContent } from '../record/mirrorContent.ts';
import { listMirrorStates } from '../record/nodeReport.ts';
import {
  awaitThat,
  disruptionPolicy,
  findLatePool,
  findMissingPolicy,
  readRendered,
  requireHealthyPools,
  type DisruptionPolicy,
} from '../record/poolRollout.ts';
import {
  authoritySecret,
  issueMirrorCertificates,
  readSecret,
  servingSecret,
  warnOfForbidden,
  type IssuedCertificates,
} from './mirrorCertificates.ts';
import { checkMirrorSite } from './mirrorCheck.ts';
import {
  authorityConfigs,
  authorityMap,
  authorityMapName,
  authorityPath,
  certificatesFolder,
  digestMirrorSet,
  hasAuthorityConfig,
  imageConfig,
  isAuthorityConfig,
  listMirrorHosts,
  mirrorAccess,
  mirrorPolicy,
  mirrorSet,
  rendersMirrors,
  trustingConfig,
  type MirrorPlan,
} from './mirrorObjects.ts';
import {
  describeSilentMirrors,
  listControlPlane,
  readMirrorPlan,
  readMirrorSite,
  silentAdvice,
  type KnownSite,
  type MirrorSite,
} from './mirrorSite.ts';
import { mirrorPort } from './mirrorUnit.ts';

/** The mirrors of an installation. What is undefined or empty stays as it was before. */
export interface MirrorChoice extends WaitOptions {
  readonly port?: number | undefined;
  /** The bytes that the retained bundles may take on a node; 0 for no quota. */
  readonly quota?: number | undefined;
  readonly content?: MirrorContent | undefined;
  /** Repositories to mirror in addition to those of the release. */
  readonly sources: readonly string[];
  /** Whether nodes may be drained or rebooted, which OpenShift before 4.17 does. */
  readonly mayDisrupt: boolean;
}

/**
 * The field manager of everything that a mirror adds to objects. It is not the one of other writes: a later apply of
 * the same object would remove the fields.
 */
const manager = 'oc-upgrade-bundle-mirror';

const machines = 'machineconfiguration.openshift.io/v1';

/**
 * Lets the nodes of a cluster pull from mirrors on its control plane nodes, and waits until every node is configured.
 * Trust comes before the mirrors, and the policy that keeps nodes from rebooting comes before their files. Throws
 * `unsupported` before OpenShift 4.17 unless nodes may be disrupted, and `usage` for a quota of metadata. Throws
 * `not-ready` with the blockers of preflight, or with the pool that is not ready, and the errors of applyObjects.
 */
export async function installMirror(
  cluster: Cluster,
  { overwrite, dryRun }: ApplyOptions,
  choice: MirrorChoice,
  context: Context,
): Promise<readonly AppliedObject[]> {
  const site = await readMirrorSite(cluster, choice.sources);
  const { port = site.former?.port ?? mirrorPort, content = site.content, quota } = choice;
  if (quota && content === 'metadata') {
    const message = 'a quota limits whole bundles, and the mirrors keep metadata only';
    throw new PluginError('usage', message, { settings: ['mirrorContent'] });
  }
  const fullPlan = { ...site, port, content, addresses: chooseAddresses(site) };
  await requireFitting(cluster, fullPlan, context);
  if (!site.hasPolicies && !choice.mayDisrupt) {
    throw new PluginError('unsupported', `${cluster.name} reboots every node when the CA of the mirrors changes`, {
      hint: 'Node disruption policies came with OpenShift 4.17. Before it, confirm the restarts, pool by pool.',
      settings: ['yes'],
    });
  }
  const options = { overwrite, dryRun, manager };
  if (!dryRun) await requireHealthyPools(cluster);
  const issued = dryRun
    ? { authority: (await readSecret(cluster, servingSecret))['ca.crt'], written: [], forbidden: [] }
    : await issueMirrorCertificates(cluster, { ...fullPlan, quota }, { mayCreate: true, now: new Date(), manager });
  const authority = issued?.authority ?? '';
  const forbidden = issued?.forbidden ?? [];
  warnOfForbidden(forbidden, context);
  const plan = { ...fullPlan, addresses: fullPlan.addresses.filter((each) => !forbidden.includes(each)) };
  const trust = [
    ...mirrorAccess(plan),
    authorityMap(plan, authority),
    ...(site.trustedAuthorities === undefined ? [trustingConfig] : []),
  ];
  const siteFiles = site.hasPolicies ? policyFiles(await cluster.read(disruptionPolicy)) : [];
  // The policy for mirrors may be that of an interrupted run, whose nodes are not done.
  const mirrorsToo = isNarrower(plan, site.former) || siteFiles.some(({ path }) => path === registriesFile);
  const policy = site.hasPolicies ? [mirrorPolicy({ mirrorsToo, siteFiles })] : [];
  if (policy.some((each) => !policyPaths(each).includes(certificatesFolder))) {
    throw new PluginError('conflict', `the site has its own node disruption policy for ${certificatesFolder}`, {
      hint:
        'Nodes would follow it when the CA of the mirrors changes. Set its actions to None: oc edit ' +
        'machineconfiguration cluster.',
    });
  }
  const before = await applyObjects(cluster, [...trust, ...policy], options, context);
  const paths = policy.flatMap(policyPaths);
  if (!dryRun && paths.length > 0) await awaitThat(() => findMissingPolicy(cluster, paths), choice, context);
  // One rendered configuration has both, so that each node changes once.
  const changes = [...authorityConfigs(plan, authority), digestMirrorSet(plan)];
  const after = await applyObjects(cluster, changes, options, context);
  const isConfigured = (config: StoredObject): boolean =>
    listMirrorHosts(plan).every((host) => readConfigFile(config, authorityPath(host)) === authority) &&
    rendersMirrors(config, plan, site.former);
  if (!dryRun) await awaitThat(() => findUnconfigured(cluster, isConfigured), choice, context);
  if (!dryRun && mirrorsToo && site.hasPolicies)
    await cluster.apply(mirrorPolicy({ mirrorsToo: false, siteFiles }), { manager });
  const secrets = (issued?.written ?? []).map((object) => ({ object, outcome: 'configured' as const }));
  return [...secrets, ...before, ...after];
}

/**
 * Waits until the mirror of every control plane node runs as it is installed, as its agent reports. The kubelet brings
 * the certificate to the controllers within two minutes. Throws `not-ready` with the nodes without one.
 */
export async function awaitMirrors(cluster: Cluster, wait: WaitOptions, context: Context): Promise<void> {
  const findSilent = async (): Promise<string | undefined> =>
    describeSilentMirrors(cluster, await listMirrorStates(cluster));
  await awaitThat(findSilent, wait, context, silentAdvice);
}

/**
 * Adds the addresses of new control plane nodes to installed mirrors. `pools`: those whose nodes have the CA. Throws
 * the errors of applyObjects.
 */
export async function extendMirror(
  cluster: Cluster,
  site: KnownSite,
  { authority, forbidden }: Pick<IssuedCertificates, 'authority' | 'forbidden'>,
  context: Context,
): Promise<void> {
  const read = await readMirrorPlan(cluster, site);
  if (!read.former) return;
  const { port, addresses: former } = read.former;
  // Nodes are drained if an address goes, so one of a node that is gone stays, as the last.
  const addresses = [...new Set([...read.addresses, ...former])].filter((each) => !forbidden.includes(each));
  const plan = { ...read, port, addresses };
  const objects = [authorityMap(plan, authority), ...authorityConfigs(plan, authority), digestMirrorSet(plan)];
  await applyObjects(cluster, objects, { overwrite: false, manager }, context);
}

/** Leaves out addresses of nodes that are gone, if no node is drained for it. */
function chooseAddresses({ addresses, hasPolicies, former }: MirrorSite): string[] {
  return [...new Set([...addresses, ...(hasPolicies ? [] : (former?.addresses ?? []))])];
}

/** Returns whether nodes lose a mirror, a source or their order, for which they would be drained without a policy. */
function isNarrower(plan: MirrorPlan, former: MirrorSite['former']): boolean {
  if (!former) return false;
  const hosts = listMirrorHosts(plan);
  return (
    former.content !== plan.content ||
    former.sources.some((source) => !plan.sources.includes(source)) ||
    listMirrorHosts(former).some((host) => !hosts.includes(host))
  );
}

/** Logs the warnings about mirrors. Reads the pods of the control plane only. Throws `not-ready` with the blockers. */
async function requireFitting(cluster: Cluster, site: MirrorSite & MirrorPlan, context: Context): Promise<void> {
  const pods = await Promise.all(
    listControlPlane(site.nodes).map(({ metadata: { name } }) =>
      cluster.list('v1', 'Pod', { fieldSelector: `spec.nodeName=${name}` }),
    ),
  );
  const templates = pods.flat().flatMap((pod) => readPodTemplate(pod) ?? []);
  const findings = checkMirrorSite(site, site.port, templates);
  for (const finding of findings.filter(({ severity }) => severity === 'warning'))
    context.log('warn', `${describeFinding(finding)}. ${finding.advice}`);
  const blockers = findings.filter(({ severity }) => severity === 'blocker');
  const [first] = blockers;
  if (!first) return;
  const message = `${cluster.name} cannot have mirrors: ${nameSome(blockers.map(describeFinding), 5, '; ')}`;
  throw new PluginError('not-ready', message, { hint: first.advice });
}

/**
 * Removes the mirrors from the configuration of the cluster, and then their certificates, which ends the servers.
 * Leaves everything of the site. `wait` undefined: does not wait for the nodes, and leaves the policy, without which
 * they would reboot. Returns the removed objects. Throws `not-ready` with the pool that is not ready.
 */
export async function removeMirror(
  cluster: Cluster,
  { dryRun }: Pick<ApplyOptions, 'dryRun'>,
  wait: WaitOptions | undefined,
  context: Context,
): Promise<readonly ObjectReference[]> {
  const isThere = await cluster.read({ apiVersion: 'v1', kind: 'Secret', metadata: authoritySecret });
  const hasSet = (await cluster.findKind(mirrorSet.apiVersion, mirrorSet.kind)) && (await cluster.read(mirrorSet));
  if (!isThere && !hasSet) return [];
  const { port = '' } = await readSecret(cluster, servingSecret);
  const hasPolicy = (await cluster.findKind(disruptionPolicy.apiVersion, disruptionPolicy.kind)) !== undefined;
  if (!dryRun && wait && hasPolicy && (await cluster.read(disruptionPolicy))) {
    const siteFiles = policyFiles(await cluster.read(disruptionPolicy));
    const policy = mirrorPolicy({ mirrorsToo: true, siteFiles });
    await cluster.apply(policy, { manager, force: true });
    await awaitThat(() => findMissingPolicy(cluster, policyPaths(policy)), wait, context);
  }
  const configs = (await cluster.listMetadata(machines, 'MachineConfig')).filter(({ metadata }) =>
    isAuthorityConfig(metadata.name),
  );
  const files = [mirrorSet, ...configs].map(({ apiVersion, kind, metadata: { name } }) => {
    return { apiVersion, kind, metadata: { name } };
  });
  const removed: ObjectReference[] = await deleteObjects(cluster, files, { dryRun }, context);
  const isClean = (config: StoredObject, pool: StoredObject): boolean =>
    !hasAuthorityConfig(pool) && !hasMirror(config, `localhost:${port}`);
  // Also if an earlier run has removed the files: its nodes may not be done.
  if (!dryRun && wait) await awaitThat(() => findUnconfigured(cluster, isClean), wait, context);
  if (!dryRun) await removeFields(cluster, wait !== undefined && hasPolicy);
  const rest = [
    ...mirrorAccess({ roles: [], trustedAuthorities: undefined, hasPolicies: true }).toReversed(),
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: authorityMapName, namespace: 'openshift-config' } },
    ...[servingSecret, authoritySecret].map((metadata) => ({ apiVersion: 'v1', kind: 'Secret', metadata })),
  ];
  return [...removed, ...(await deleteObjects(cluster, rest, { dryRun }, context))];
}

/** Removes the fields that the mirrors added to objects of the site: what a manager no longer applies is removed. */
async function removeFields(cluster: Cluster, withPolicy: boolean): Promise<void> {
  const name = textOf(fieldsAt(await cluster.read(imageConfig), 'spec', 'additionalTrustedCA')['name']) ?? '';
  const metadata = { name, namespace: 'openshift-config' };
  if (name === authorityMapName) await cluster.apply({ ...imageConfig, spec: {} } satisfies ImageConfig, { manager });
  else if (name !== '' && (await cluster.read({ apiVersion: 'v1', kind: 'ConfigMap', metadata })))
    await cluster.apply({ apiVersion: 'v1', kind: 'ConfigMap', metadata } satisfies Written<'ConfigMap'>, { manager });
  if (withPolicy && (await cluster.read(disruptionPolicy)))
    await cluster.apply({ ...disruptionPolicy, spec: {} } satisfies DisruptionPolicy, { manager });
}

function policyFiles(policy: Partial<KubernetesObject> | undefined): Readonly<Record<string, unknown>>[] {
  return listOf(fieldsAt(policy?.['spec'], 'nodeDisruptionPolicy')['files']);
}

function policyPaths(policy: KubernetesObject): string[] {
  return policyFiles(policy).map(({ path }) => String(path));
}

function hasMirror(config: StoredObject, host: string): boolean {
  return readConfigFile(config, registriesFile)?.includes(`"${host}/`) === true;
}

/** Returns the pool whose nodes do not all have the wanted configuration; undefined if all have. */
async function findUnconfigured(
  cluster: Cluster,
  isConfigured: (config: StoredObject, pool: StoredObject) => boolean,
): Promise<string | undefined> {
  return findLatePool(cluster, async (pool) => {
    const metadata = { name: readRendered(pool['status']) };
    if (metadata.name === '') return false;
    const config = await cluster.read({ apiVersion: machines, kind: 'MachineConfig', metadata });
    return config !== undefined && isConfigured(config, pool);
  });
}
