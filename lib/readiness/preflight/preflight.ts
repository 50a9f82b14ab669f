import type { BundleBase } from '#bundle/metadata';
import type { UpdatePlan } from '#bundle/verify';
import type { Cluster } from '#cluster/client';
import { sortFindings, subjectOf, type Finding, ignoreFindings, isOpenBlocker } from '#cluster/finding';
import { type StoredObject, listServed } from '#cluster/objects';
import { readClusterVersion, blocks, platformStops } from '#cluster/version';
import { checkInterrupted, type Context } from '#context';
import { ignoring, PluginError } from '#errors';
import { fieldsAt, textOf, listOf, textsOf } from '#fields';
import { readPayloadGates, type GatedRelease, readFeatureSets } from '#release/payload';
import { isOlder, isSameMinor } from '#release/version';
import { lintManifests } from '../lint/lint.ts';
import { payloadSet } from '../lint/manifestSource.ts';
import { checkImageRetention } from '../nodes/imageRetention.ts';
import { checkAgentNodes, isPoolNode, mayHaveAgent, readNode } from '../nodes/node.ts';
import { checkLeftOut, checkNode, type NodeKnowledge } from '../nodes/nodeCheck.ts';
import { unpackedFactor } from '../nodes/nodeDisks.ts';
import { checkSitePins, losesOnlyOwnPins, pinnedOf } from '../nodes/pinnedImageSets.ts';
import { checkAcknowledgements } from './acknowledgements.ts';
import { checkPullAdmission, checkAgentImage } from './admissionCheck.ts';
import { checkCertificates, checkSigningRequests } from './certificateCheck.ts';
import { checkCapacity, checkDrains } from './drainCheck.ts';
import { checkDrills } from './drillRecord.ts';
import { checkHolds } from './holds.ts';
import { checkImagePolicies } from './imagePolicyCheck.ts';
import { checkImageRemoval, checkPullVerification, type BundledImages } from './kubeletImages.ts';
import { checkMirroredStreams } from './mirroredStreams.ts';
import { checkMirrorSignatures, type MirrorAccess } from './mirrorSignatures.ts';
import { checkCatalogs, checkEtcdMembers, checkOperators, checkPools, topologyOf } from './operatorCheck.ts';
import { checkPreviewStreams, checkStreams, checkWaitingController } from './osImageStreamCheck.ts';
import { readPodTemplate, type PodTemplate } from './podTemplate.ts';
import { checkFailedPulls, checkManifests, checkWorkloads } from './pullPolicy.ts';
import {
  featureSetOf,
  hasMirrors,
  hasRules,
  hasSiteMirrors,
  imageLimitsOf,
  isOwnMirrorSet,
  keepsBundles,
  mirrorSetsOf,
  surveyCluster,
  surveyedKinds,
  type ClusterSurvey,
  isInternalRegistry,
} from './survey.ts';
import { checkPath, checkState } from './versionCheck.ts';
import { checkWebhooks } from './webhookCheck.ts';

/** The result of preflight: whether a cluster can boot and, if planned, update without a registry. */
export interface Preflight {
  /** The name of the context. */
  readonly cluster: string;
  /** The version that the cluster runs. */
  readonly version: string;
  /** The version of the bundle. */
  readonly target: string | undefined;
  /** The numbers of nodes and workloads that were checked. */
  readonly nodes: number;
  readonly workloads: number;
  /** Whether no finding is a blocker, except ignored blockers. */
  readonly ready: boolean;
  /** The findings, the most important first. */
  readonly findings: readonly Finding[];
  /** The names of ignored findings that overrule no blocker. */
  readonly unused: readonly string[];
}

/** What preflight is told beside the cluster and the update. */
export interface PreflightOptions {
  /** A survey of the cluster, if there is one already. */
  readonly survey?: ClusterSurvey;
  /** How to ask the mirrors of the cluster for signatures; they are not asked without it. */
  readonly mirrors?: MirrorAccess;
  /** The names of blockers that an administrator overrules, see `ignoreFindings`. */
  readonly ignore?: readonly string[];
}

/**
 * Finds everything that blocks a boot of a cluster, or the planned update, without a registry. Changes nothing. Throws
 * `unsupported` for a cluster that is not OpenShift, and the errors of reading the cluster.
 */
export async function runPreflight(
  cluster: Cluster,
  planned: UpdatePlan | undefined,
  context: Context,
  { survey: givenSurvey, mirrors, ignore = [] }: PreflightOptions = {},
): Promise<Preflight> {
  const survey = givenSurvey ?? (await surveyCluster(cluster));
  checkInterrupted(context.signal);
  const [clusterVersion] = survey.versions;
  if (!clusterVersion) throw notOpenShift(cluster, survey);
  const { version } = readClusterVersion(clusterVersion);
  // Of several updates, the next one counts.
  const plan = planned?.earlier?.find((each) => isOlder(version, each.version)) ?? planned;
  const templates = survey.workloads.flatMap((object) => readPodTemplate(object) ?? []);
  const [release] = runningImages(clusterVersion);
  const found = [
    ...survey.findings,
    ...checkSurvey(survey, templates.length, clusterVersion),
    ...(plan ? await checkPlan(plan, clusterVersion, survey, context) : []),
    ...(planned ? await checkAcknowledgements(cluster, version, listReleases(planned, context)) : []),
    ...(planned ? await checkHolds(cluster, survey, version, listVersions(planned, version)) : []),
    ...checkState(clusterVersion, plan),
    ...checkOperators(survey.operators, plan !== undefined && !isSameMinor(version, plan.version)),
    ...checkPools(survey.pools, undefined, losesOnlyOwnPins(survey)),
    ...checkSigningRequests(survey.signingRequests),
    ...(plan ? [...checkDrains(survey), ...checkCapacity(survey)] : []),
    ...(plan ? checkEtcdMembers(survey.etcds, survey.infrastructures) : []),
    ...checkWebhooks(survey),
    ...(await checkCertificates(cluster, survey)),
    ...(await checkImageRetention(cluster, survey.pools)),
    ...checkCatalogs(survey.catalogs),
    ...(await checkPullAdmission(cluster, hasSiteMirrors(survey))),
    ...(await checkImagePolicies(cluster, survey, plan, runningImages(clusterVersion), context)),
    ...(mirrors ? await checkMirrors(clusterVersion, survey, plan, mirrors, context) : []),
    ...(plan ? await checkMirroredStreams(cluster, survey, plan, mirrors) : []),
    ...checkInternalReleaseImage(survey),
    ...checkAgentImage(survey.workloads),
    ...checkWorkloads(templates, { release, mirrors: mirrorSetsOf(survey) }),
    ...checkFailedPulls(survey.workloads, release, plan?.images ?? []),
    ...checkSitePins(survey),
    ...checkImageRemoval({ ...survey, nodes: listPoolNodes(survey) }, plan ? plan.size * unpackedFactor : 0),
    ...(plan ? checkPullVerification(survey, listPoolNodes(survey), loadedBy(plan, survey)) : []),
    ...(await checkWaitingController(cluster)),
    ...checkAgentNodes(survey.nodes.map(readNode)),
    ...checkNodes(survey, templates, clusterVersion, plan),
    ...checkDrills(listPoolNodes(survey)),
  ];
  const { findings, unused } = ignoreFindings(found, ignore);
  return {
    cluster: cluster.name,
    version,
    target: plan?.version,
    nodes: listPoolNodes(survey).length,
    workloads: templates.length,
    ready: !findings.some(isOpenBlocker),
    findings: sortFindings(findings),
    unused,
  };
}

/**
 * Throws `unsupported` if the control plane of a cluster is hosted by another cluster: no machine config operator runs
 * there, and NodePools of the other cluster update the nodes (openshift/hypershift). Passes over a missing right.
 */
export async function refuseHostedControlPlane(cluster: Cluster): Promise<void> {
  const found = await listServed(cluster, ...surveyedKinds.infrastructures).catch(ignoring('denied'));
  if (topologyOf(found ?? []) !== 'External') return;
  const message = `the control plane of ${cluster.name} is hosted (controlPlaneTopology External): no bundle updates it`;
  const remedy =
    'Update its HostedCluster and its NodePools in the management cluster, with a mirror that serves the release.';
  const hint = `${platformStops.hosted.because} ${remedy}`;
  throw new PluginError('unsupported', message, { hint, settings: ['context', 'kubeconfig'] });
}

/** Finds a cluster that shows too little to be checked: nothing would be found in it. */
function checkSurvey({ nodes }: ClusterSurvey, workloads: number, clusterVersion: StoredObject): Finding[] {
  const { version } = readClusterVersion(clusterVersion);
  const lacks: readonly (readonly [boolean, Finding['check'], Finding['subject'], string])[] = [
    [version === '', 'version', subjectOf(clusterVersion), 'does not say which version the cluster runs'],
    [
      nodes.length === 0,
      'nodes',
      { kind: 'Node', name: '' },
      'the cluster shows no node, and at least one is expected',
    ],
    [
      workloads === 0,
      'rights',
      { kind: 'Pod', name: '' },
      'the cluster shows no workload, and those of OpenShift are expected',
    ],
  ];
  return lacks.flatMap(([isLacking, check, subject, message]) =>
    isLacking ? [{ check, ...blocks('unseen'), subject, message, advice: emptyAdvice }] : [],
  );
}

const emptyAdvice =
  'Run this as a user with the role cluster-reader, when the cluster runs: what it does not show cannot be checked.';

async function checkPlan(
  plan: UpdatePlan,
  clusterVersion: StoredObject,
  survey: ClusterSurvey,
  context: Context,
): Promise<Finding[]> {
  const { path, version, release, distrust, manifests } = plan;
  const featureSet = featureSetOf(survey.featureGates);
  const report = await lintManifests(payloadSet(path, release, manifests, context, featureSet), context);
  const supply = {
    mirrored: hasMirrors(plan, survey),
    pinsImages: survey.pinsImages,
    featureSet,
  };
  const untrusted: Finding[] = distrust
    ? [
        {
          check: 'bundle',
          ...blocks('untrusted'),
          subject: { kind: 'Bundle', name: path },
          message: distrust.message,
          advice: distrust.hint ?? 'Use a bundle of a release that a trusted key signed.',
        },
      ]
    : [];
  const target = { ...plan, pinsIn: readFeatureSets(manifests, version, 'PinnedImageSet', context) };
  return [
    ...untrusted,
    ...checkPath(clusterVersion, target, supply),
    ...checkStreams(
      plan.streams,
      release,
      { ...supply, clusterVersion, existing: survey.osImageStreams[0] },
      survey.pools,
    ),
    ...checkPreviewStreams(version, {
      clusterVersion,
      featureSet,
      mirrored: supply.mirrored || survey.digestMirrors.some(isOwnMirrorSet),
    }),
    ...checkManifests(report, version, supply.mirrored),
  ];
}

async function checkMirrors(
  clusterVersion: StoredObject,
  survey: ClusterSurvey,
  plan: UpdatePlan | undefined,
  mirrors: MirrorAccess,
  context: Context,
): Promise<Finding[]> {
  const { version } = readClusterVersion(clusterVersion);
  const [release] = runningImages(clusterVersion);
  const asked = plan ?? (release === undefined ? undefined : { version, release });
  return asked ? checkMirrorSignatures(survey, asked, mirrors, context) : [];
}

function listReleases(planned: UpdatePlan, context: Context): GatedRelease[] {
  return [...(planned.earlier ?? []), planned].map(({ version, manifests }) => ({
    version,
    gates: readPayloadGates(manifests, version, context),
  }));
}

/** Lists the versions of the updates that are later than the running one, in their order. */
function listVersions(planned: UpdatePlan, running: string): string[] {
  return [...(planned.earlier ?? []), planned].flatMap(({ version }) => (isOlder(running, version) ? [version] : []));
}

function checkNodes(
  survey: ClusterSurvey,
  templates: readonly PodTemplate[],
  clusterVersion: StoredObject,
  plan: UpdatePlan | undefined,
): Finding[] {
  const knowledge = knowledgeOf(survey);
  const running = runningImages(clusterVersion);
  return listPoolNodes(survey).flatMap((node) => checkNode(readNode(node), templates, running, plan, knowledge));
}

function loadedBy(plan: UpdatePlan, survey: ClusterSurvey): BundledImages {
  const images = [plan.release, ...plan.images];
  const mirrored = hasMirrors(plan, survey) || survey.digestMirrors.some(keepsBundles);
  return { images, givenBy: mirrored ? 'mirrors' : hasRules(images, survey) ? undefined : 'agents' };
}

function listPoolNodes({ nodes }: Pick<ClusterSurvey, 'nodes'>): StoredObject[] {
  return nodes.filter((node) => isPoolNode(readNode(node)));
}

/**
 * Finds the nodes of a cluster that lack what a bundle for their site leaves out. Changes nothing. Throws the errors of
 * reading the cluster.
 */
export async function findLeftOut(cluster: Cluster, base: BundleBase): Promise<Finding[]> {
  const survey = await surveyCluster(cluster);
  const nodes = survey.nodes.map(readNode).filter(mayHaveAgent);
  return nodes.flatMap((node) => checkLeftOut(node, { base }, knowledgeOf(survey)));
}

function knowledgeOf(survey: ClusterSurvey): NodeKnowledge {
  const retains = survey.digestMirrors.some(keepsBundles);
  return { imageLimits: imageLimitsOf(survey), pinned: pinnedOf(survey), disks: survey.disks, retains };
}

function runningImages(clusterVersion: StoredObject): string[] {
  const release = textOf(fieldsAt(clusterVersion, 'status', 'desired')['image']);
  return release === undefined ? [] : [release];
}

function notOpenShift(cluster: Cluster, { findings }: ClusterSurvey): PluginError {
  const denied = findings.find(({ subject }) => subject.kind === 'ClusterVersion');
  if (denied) return new PluginError('denied', denied.message, { hint: denied.advice });
  const message = `${cluster.name} (${cluster.server}) has no ClusterVersion: it is not OpenShift`;
  const hint = 'Choose another cluster.';
  return new PluginError('unsupported', message, { hint, settings: ['context', 'kubeconfig'] });
}

const advice = {
  serves: 'Nothing to do. An update from a bundle neither uses nor changes it.',
  degraded: 'Nodes that join or are reset need it. See the condition InternalReleaseImageDegraded of the node.',
} as const;

/** Finds what InternalReleaseImage serves, by MachineConfigNodes or mirror sets, and the nodes where it is degraded. */
function checkInternalReleaseImage({
  poolNodes,
  digestMirrors,
}: Pick<ClusterSurvey, 'poolNodes' | 'digestMirrors'>): Finding[] {
  const served = poolNodes.flatMap(({ status }) => listOf(fieldsAt(status, 'internalReleaseImage')['releases']));
  const names = [...new Set(served.flatMap(({ name }) => textOf(name) ?? []))].sort();
  if (names.length === 0 && !digestMirrors.some(hasInternalRegistry)) return [];
  const what = names.length === 0 ? 'releases of the installer' : names.join(', ');
  const message = `the control plane nodes serve ${what} on port 22625`;
  const subject = { kind: 'InternalReleaseImage', name: 'cluster' };
  return [
    { check: 'images', severity: 'info', subject, message, advice: advice.serves },
    ...poolNodes.flatMap((node): Finding[] => {
      const degraded = listOf(fieldsAt(node, 'status')['conditions']).find(
        ({ type, status }) => type === 'InternalReleaseImageDegraded' && status === 'True',
      );
      if (!degraded) return [];
      const words = `its registry of InternalReleaseImage is degraded: ${textOf(degraded['message']) ?? 'no reason'}`;
      return [
        { check: 'images', severity: 'warning', subject: subjectOf(node), message: words, advice: advice.degraded },
      ];
    }),
  ];
}

function hasInternalRegistry({ spec }: StoredObject): boolean {
  return listOf(fieldsAt(spec)['imageDigestMirrors']).some(({ mirrors }) => textsOf(mirrors).some(isInternalRegistry));
}
