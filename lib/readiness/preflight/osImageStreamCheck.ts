import { fieldsAt, fieldsOf, textOf } from '../../fields.ts';
import { isPluginError } from '../../errors.ts';
import type { StoredObject } from '../../cluster/fields.ts';
import { readClusterVersion } from '../../cluster/clusterVersion.ts';
import { subjectOf, type Finding } from '../../cluster/finding.ts';
import { formatOSImageStream, installedVersionOf, noStreamsAdvice } from '../../release/osImageStreamObject.ts';
import { needsStreams, type OSImageStreams } from '../../release/osImageStreams.ts';
import { isSameMinor } from '../../release/version.ts';
import type { ImageSupply } from './versionCheck.ts';

/** What decides whether the operating system streams of a release can be described in a cluster. */
export interface StreamSupply extends Pick<ImageSupply, 'mirrored' | 'featureSet'> {
  readonly clusterVersion: StoredObject;
  /** The OSImageStream `cluster`, if there is one. */
  readonly existing: StoredObject | undefined;
}

const advice = {
  described:
    'Nothing, if the agents update the cluster: their controller writes OSImageStream. If you update by hand, apply it ' +
    'while the update runs: oc adm-upgrade-bundle streams.',
  unused: 'Nothing: no node needs the images of the other streams.',
  preview:
    'Install mirrors on the control plane (oc adm-upgrade-bundle install), which serve the bundle before the update begins. ' +
    'Only from 4.23 on can the controller of the agents describe the streams.',
};

const previews = ['TechPreviewNoUpgrade', 'DevPreviewNoUpgrade'];

/**
 * Finds why the operating system streams of a release cannot be described in a cluster without mirrors: a blocker,
 * because machine-config-controller would wait for a registry. `pools`: names the streams that their nodes use.
 */
export function checkStreams(
  streams: OSImageStreams | undefined,
  release: string,
  { mirrored, featureSet, clusterVersion, existing }: StreamSupply,
  pools: readonly StoredObject[] = [],
): Finding[] {
  if (!needsStreams(streams, featureSet)) return [];
  const subject = subjectOf(clusterVersion);
  const { version, availableStreams } = streams;
  const names = availableStreams.map(({ name }) => name).join(', ');
  try {
    const cluster = { installedVersion: installedVersionOf(clusterVersion), existing };
    const { status } = formatOSImageStream(streams, release, cluster);
    const message = `${version} needs its operating system streams described in the cluster: ${names}`;
    const needs: Finding = { check: 'streams', severity: 'info', subject, message, advice: advice.described };
    return [...(mirrored ? [] : [needs]), ...listUses(status.defaultStream, availableStreams.length, pools)];
  } catch (error) {
    if (!isPluginError(error, 'not-ready')) throw error;
    const { message, hint = noStreamsAdvice } = error;
    return mirrored ? [] : [{ check: 'streams', severity: 'blocker', subject, message, advice: hint }];
  }
}

/**
 * Finds that machine-config-operator of 4.22 would wait for a registry. In previews it reads the images of operating
 * systems itself, and renders nothing before (openshift machine-config-operator 9027c94c, pkg/operator/osimagestream_ocp.go).
 * `mirrored`: whether the cluster has any mirror of the release, also on the control plane.
 */
export function checkPreviewStreams(
  version: string,
  { mirrored, featureSet = '', clusterVersion }: Omit<StreamSupply, 'existing'>,
): Finding[] {
  const isAffected = isSameMinor(version, '4.22.0') && previews.includes(featureSet);
  if (mirrored || !isAffected || readClusterVersion(clusterVersion).version === version) return [];
  const message = `machine-config-operator of ${version} with ${featureSet} reads operating systems from a registry, and the cluster has no mirror`;
  const subject = subjectOf(clusterVersion);
  return [{ check: 'streams', severity: 'blocker', subject, message, advice: advice.preview }];
}

/** Names the stream of each pool, if a release has several. */
function listUses(defaultStream: string, count: number, pools: readonly StoredObject[]): Finding[] {
  if (count < 2) return [];
  return pools.map((pool) => {
    const message = `its nodes will use the stream ${streamOf(pool, pools) ?? defaultStream}`;
    return { check: 'streams', severity: 'info', subject: subjectOf(pool), message, advice: advice.unused };
  });
}

/** Custom pools take the stream of the workers (GetEffectiveOSImageStreamName of machine-config-operator). */
function streamOf(pool: StoredObject, pools: readonly StoredObject[]): string | undefined {
  const nameOf = (each: StoredObject | undefined): string | undefined =>
    textOf(fieldsAt(fieldsOf(each?.['spec']), 'osImageStream')['name']);
  const isStandard = ['master', 'worker', 'arbiter'].includes(pool.metadata.name);
  return nameOf(pool) ?? (isStandard ? undefined : nameOf(pools.find(({ metadata }) => metadata.name === 'worker')));
}
