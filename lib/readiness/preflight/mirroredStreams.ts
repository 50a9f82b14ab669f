import type { UpdatePlan } from '#bundle/verify';
import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding } from '#cluster/finding';
import { blocks } from '#cluster/version';
import { type Digest, formatReference, parseReference } from '#content/oci';
import { readImageManifest, type ContentSource } from '#content/store';
import { isPluginError, nameSome } from '#errors';
import { fieldsOf, textOf } from '#fields';
import { listSystemImages, needsStreams, type OSImageStreams } from '#release/payload';
import { SiteMirrors, type MirrorAccess } from './mirrorSignatures.ts';
import { featureSetOf, hasMirrors, mirrorSetsOf, type ClusterSurvey } from './survey.ts';

const check = 'streams' as const;
/** The Secret with the pull secret of a cluster, as the subject of findings. */
export const pullSecret = { kind: 'Secret', name: 'pull-secret', namespace: 'openshift-config' };

const advice = {
  secret:
    'Create it, of the type kubernetes.io/dockerconfigjson. If the mirrors need no credentials, {"auths":{}} is ' +
    'enough.',
  proxy: 'Let the proxy reach the mirrors, or apply the streams while the update runs: oc adm-upgrade-bundle streams.',
  layers: 'If the controller waits, apply the streams while the update runs: oc adm-upgrade-bundle streams.',
  reach: 'Run this on a machine that reaches the mirrors of the cluster, with the credentials for them.',
};

/** The part of a plan that names the images of operating systems. */
type StreamPlan = Pick<UpdatePlan, 'version' | 'release' | 'images' | 'streams'>;

/**
 * Finds why machine-config-controller could not read the operating system streams of a release from the mirrors of a
 * cluster: images that they lack, no pull secret, and a proxy. Asks them from this machine, not from a pod. Throws the
 * errors of the cluster.
 */
export async function checkMirroredStreams(
  cluster: Cluster,
  survey: ClusterSurvey,
  plan: StreamPlan,
  mirrors: MirrorAccess | undefined,
): Promise<Finding[]> {
  const { streams, version } = plan;
  if (!needsStreams(streams, featureSetOf(survey.featureGates)) || !hasMirrors(plan, survey)) return [];
  const controller = `machine-config-controller of ${version}`;
  const proxies = survey.proxies.filter(({ status }) => {
    const { httpsProxy, httpProxy } = fieldsOf(status);
    return [httpsProxy, httpProxy].some((url) => (textOf(url) ?? '') !== '');
  });
  const isLacking = await lacksPullSecret(cluster);
  const message = {
    secret: `does not exist, and ${controller} reads no mirror without it`,
    proxy:
      `${controller} may read the mirrors through this proxy and ignore noProxy (machine-config-operator, PR ` +
      '6424)',
  };
  return [
    ...(mirrors ? await askMirrors(survey, plan, streams, mirrors) : []),
    ...(isLacking
      ? [{ check, ...blocks('streams'), subject: pullSecret, message: message.secret, advice: advice.secret }]
      : []),
    ...proxies.map((proxy): Finding => {
      return { check, severity: 'warning', subject: subjectOf(proxy), message: message.proxy, advice: advice.proxy };
    }),
  ];
}

/** Asks the mirrors for the release image and all operating system images. The controller reads no others. */
async function askMirrors(
  survey: ClusterSurvey,
  { release, version }: StreamPlan,
  streams: OSImageStreams,
  { registries, pushCommand }: MirrorAccess,
): Promise<Finding[]> {
  const sets = mirrorSetsOf(survey);
  const mirrors = new SiteMirrors(sets, registries);
  const images = [release, ...listSystemImages(streams)];
  const lacking: string[] = [];
  let other: string | undefined;
  for (const image of images) {
    const { registry, repository, digest } = parseReference(image);
    const source = digest && (await mirrors.attempt(() => mirrors.find({ registry, repository, digest })));
    if (!source) lacking.push(image);
    if (source && image === release) other = await mirrors.attempt(() => findOtherLayer(source, digest));
  }
  const [first] = sets.locationsOf(parseReference(release));
  const name = first ? formatReference({ registry: first.registry, repository: first.repository }) : '';
  const what = `of ${images.length} images that machine-config-controller of ${version} reads before it updates nodes`;
  const { failure } = mirrors;
  const subject = { kind: 'Mirror', name };
  const findings: Finding[] = [];
  if (other !== undefined) {
    const message = `has the release image with a layer of ${other}, and machine-config-controller reads gzip only`;
    findings.push({ check, severity: 'warning', subject, message, advice: advice.layers });
  }
  if (lacking.length > 0) {
    findings.push({
      ...(failure ? ({ severity: 'warning' } as const) : blocks('streams')),
      check,
      subject,
      message: failure
        ? `was not asked for all ${what}: ${failure.message}`
        : `lacks ${lacking.length} ${what}: ${nameSome(lacking, 5)}`,
      advice: failure ? (failure.hint ?? advice.reach) : `Push the release again: ${pushCommand(name, version)}`,
    });
  }
  return findings;
}

/** Returns the media type of the first layer of an image that is not gzip (machine-config-operator, pkg/imageutils). */
async function findOtherLayer(source: ContentSource, digest: Digest): Promise<string | undefined> {
  const { layers } = await readImageManifest(source, await source.resolve(digest));
  return layers.find(({ mediaType }) => !mediaType.endsWith('gzip'))?.mediaType;
}

/**
 * Returns whether machine-config-controller has no pull secret. Nothing is known without the right to read it, which
 * the role cluster-reader does not give.
 */
export async function lacksPullSecret(cluster: Cluster): Promise<boolean> {
  const { kind, name, namespace } = pullSecret;
  try {
    return (await cluster.read({ apiVersion: 'v1', kind, metadata: { name, namespace } })) === undefined;
  } catch (error) {
    if (isPluginError(error, 'denied')) return false;
    throw error;
  }
}
