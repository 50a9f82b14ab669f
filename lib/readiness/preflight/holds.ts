import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding, type Weight } from '#cluster/finding';
import { listServed, type StoredObject } from '#cluster/objects';
import { blocks } from '#cluster/version';
import { ignoring } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import { installedVersionOf } from '#release/payload';
import { isOlder, isSameMinor, majorOf } from '#release/version';
import { readDataUrl } from '../lint/container.ts';
import { topologyOf } from './operatorCheck.ts';
import { streamOf } from './osImageStreamCheck.ts';
import { featureSetOf, type ClusterSurvey } from './survey.ts';

/** The first release whose machine config operator enforces the age of boot images (FeatureGate in openshift/api). */
const firstSkew = '4.22.0-0';

/** The oldest boot images that it accepts (machine-config-operator 9027c94c, pkg/controller/common/constants.go). */
const oldestBootImages = { openshift: '4.13.0', rhel: '9.2.0' };

/** The first release that refuses runc on RHEL 10 (machine-config-operator d20efd9b9, render_controller.go). */
const firstWithoutRunc = '4.23.0-0';

const machines = 'machineconfiguration.openshift.io/v1';

const advice = {
  skew:
    'Update the boot images (machine sets, or the image for new machines). Or state in MachineConfiguration cluster ' +
    'what new machines boot from: spec.bootImageSkewEnforcement, mode Manual with the version, or None if no machine ' +
    'is added.',
  runc:
    'Change the runtime to crun first: remove defaultRuntime from the ContainerRuntimeConfig, or default_runtime ' +
    'from the MachineConfig with the file in /etc/crio/crio.conf.d. Or keep the pool on the stream rhel-9.',
  operator:
    'Update the operator first to a version that supports the next OpenShift (create with its catalog takes it ' +
    'along), or remove it.',
  featureSet:
    'It cannot be removed (CustomNoUpgrade, TechPreviewNoUpgrade, DevPreviewNoUpgrade). Only updates within the ' +
    'minor version are possible.',
};

/**
 * Finds what keeps a cluster at a minor version on the way through some releases, by what the cluster shows now. The
 * operators say so themselves only when the cluster runs the release before. `path`: the versions of the updates.
 */
export async function checkHolds(
  cluster: Cluster,
  survey: ClusterSurvey,
  running: string,
  path: readonly string[],
): Promise<Finding[]> {
  const hops = path.map((version, index) => [path[index - 1] ?? running, version] as const);
  const minors = hops.filter(([from, to]) => !isSameMinor(from, to));
  const last = path.at(-1) ?? running;
  const [skew, operators, runc] = await Promise.all([
    isOlder(last, firstSkew) ? [] : checkBootImages(cluster, survey, minors),
    minors.length === 0 ? [] : checkOperatorLimits(cluster, minors),
    isOlder(last, firstWithoutRunc) ? [] : checkRunc(cluster, survey, last),
  ]);
  return [...skew, ...operators, ...runc, ...checkFeatureSet(survey, minors)];
}

type Hops = readonly (readonly [from: string, to: string])[];

/**
 * Finds boot images that are too old for another minor version than 4.22 or a later one (checkBootImageSkew in
 * pkg/operator/status.go). Before 4.22, it is unknown to the cluster: machine-config-operator then takes the version of
 * the installation (syncBootImageSkewEnforcementStatus in pkg/operator/sync.go).
 */
async function checkBootImages(
  cluster: Cluster,
  { versions, infrastructures }: ClusterSurvey,
  minors: Hops,
): Promise<Finding[]> {
  const held = minors.find(([from]) => !isOlder(from, firstSkew));
  const list = (apiVersion: string, kind: string): Promise<StoredObject[] | undefined> =>
    listServed(cluster, apiVersion, kind).catch(ignoring('denied'));
  const [configuration] = (await list('operator.openshift.io/v1', 'MachineConfiguration')) ?? [];
  const { bootImageSkewEnforcement } = fieldsOf(configuration?.['spec']);
  const { bootImageSkewEnforcementStatus: status } = fieldsOf(configuration?.['status']);
  const mode = textOf(fieldsOf(bootImageSkewEnforcement)['mode']) ?? textOf(fieldsOf(status)['mode']);
  if (mode === 'None') return [];
  const stated = fieldsAt(
    mode === 'Automatic' ? status : (bootImageSkewEnforcement ?? status),
    mode?.toLowerCase() ?? '',
  );
  const [clusterVersion] = versions;
  const subject = configuration ? subjectOf(configuration) : { kind: 'MachineConfiguration', name: 'cluster' };
  const say = (message: string): Finding[] => {
    const when = held ? `the update to ${held[1]}` : 'later updates to another minor version';
    const severity = held ? 'warning' : 'info';
    return [{ check: 'version', severity, subject, message: `${message}: this holds ${when}`, advice: advice.skew }];
  };
  const named = textOf(stated['ocpVersion']) ?? textOf(stated['rhcosVersion']);
  if (named !== undefined)
    return isTooOld(named) ? say(`has boot images of ${named}, older than ${oldestBootImages.openshift}`) : [];
  const installed = clusterVersion && installedVersionOf(clusterVersion);
  if (mode !== undefined || installed === undefined || !isTooOld(installed)) return [];
  if (topologyOf(infrastructures) === 'SingleReplica') return [];
  const platform = textOf(fieldsAt(infrastructures[0], 'status', 'platformStatus')['type']);
  if (platform === 'BareMetal' && !(await usesOldProvisioning(cluster))) return [];
  const words =
    `states no boot images, and the cluster was installed as ${installed}, older ` +
    `than ${oldestBootImages.openshift}`;
  return say(words);
}

/**
 * Returns whether boot images are older than the limit, by a version of OpenShift, or of RHCOS in one of its two forms.
 */
function isTooOld(version: string): boolean {
  const [, major = '', minor = '', time = ''] = /^(\d+)\.(\d+)\.(\d{8,12})(?:-|$)/.exec(version) ?? [];
  if (time === '') return isOlder(version, oldestBootImages.openshift);
  // The older form has the version of RHEL in its second part: 48.84.202208021106-0.
  const rhel = time.length === 8 ? `${major}.${minor}.0` : `${minor.slice(0, 1)}.${minor.slice(1) || '0'}.0`;
  return isOlder(rhel, oldestBootImages.rhel);
}

/** Returns whether bare metal hosts boot an image of their own (Provisioning); true if that may not be read. */
async function usesOldProvisioning(cluster: Cluster): Promise<boolean> {
  const objects = await listServed(cluster, 'metal3.io/v1alpha1', 'Provisioning').catch(ignoring('denied'));
  return objects?.some(({ spec }) => (textOf(fieldsOf(spec)['provisioningOSDownloadURL']) ?? '') !== '') ?? true;
}

/** Finds operators of OLM that support no OpenShift after one that is on the way. OLM then holds the next one. */
async function checkOperatorLimits(cluster: Cluster, minors: Hops): Promise<Finding[]> {
  // OLM copies them into each namespace of their operator group.
  const options = { labelSelector: '!olm.copiedFrom' };
  const group = 'operators.coreos.com/v1alpha1';
  const installed = await listServed(cluster, group, 'ClusterServiceVersion', options).catch(ignoring('denied'));
  return (installed ?? []).flatMap((operator): Finding[] => {
    const [max = ''] = /^\d+\.\d+/.exec(maxOpenShiftVersion(operator) ?? '') ?? [];
    const held = minors.find(([, to]) => max !== '' && isOlder(`${max}.0`, to) && !isSameMinor(`${max}.0`, to));
    if (!held) return [];
    const message = `supports OpenShift up to ${max}: OLM holds the update to ${held[1]}`;
    const subject = subjectOf(operator);
    return [{ check: 'operators', severity: 'warning', subject, message, advice: advice.operator }];
  });
}

/**
 * Returns the last minor version of OpenShift that an operator supports, by its ClusterServiceVersion. OLM sets
 * Upgradeable to false for the next one (operator-lifecycle-manager, openshift/helpers.go).
 */
export function maxOpenShiftVersion({ metadata }: StoredObject): string | undefined {
  const text = metadata.annotations?.['olm.properties'];
  if (text === undefined) return undefined;
  try {
    const property = listOf(JSON.parse(text)).find(({ type }) => type === 'olm.maxOpenShiftVersion');
    return property && String(property['value']);
  } catch {
    return undefined;
  }
}

/**
 * Finds pools of RHEL 10 whose default container runtime is runc, which RHEL 10 lacks: machine-config-controller
 * renders no configuration for them. A pool of RHEL 9 keeps runc.
 */
async function checkRunc(
  cluster: Cluster,
  { pools, osImageStreams, versions }: ClusterSurvey,
  last: string,
): Promise<Finding[]> {
  const [existing] = osImageStreams;
  const installed = (versions[0] && installedVersionOf(versions[0])) ?? '';
  const usual =
    textOf(fieldsOf(existing?.['spec'])['defaultStream']) ??
    textOf(fieldsOf(existing?.['status'])['defaultStream']) ??
    (majorOf(installed) >= 5 ? 'rhel-10' : 'rhel-9');
  const findings = pools.map(async (pool): Promise<Finding[]> => {
    const stream = streamOf(pool, pools) ?? usual;
    if (!/^(?:rhel|centos)-10(?:$|\D)/.test(stream)) return [];
    const name = textOf(fieldsAt(pool['spec'], 'configuration')['name']);
    if (name === undefined) return [];
    const reference = { apiVersion: machines, kind: 'MachineConfig', metadata: { name } };
    const rendered = await cluster.read(reference).catch(ignoring('denied'));
    if (readDefaultRuntime(rendered) !== 'runc') return [];
    const message = `has runc as its default container runtime, and ${last} has none in the stream ${stream}`;
    const weight: Weight = blocks('runc');
    return [{ check: 'pools', ...weight, subject: subjectOf(pool), message, advice: advice.runc }];
  });
  return (await Promise.all(findings)).flat();
}

/** Returns the default runtime in the drop-ins of CRI-O of a MachineConfig, of which the last by name counts. */
function readDefaultRuntime(rendered: StoredObject | undefined): string | undefined {
  const files = listOf(fieldsAt(rendered?.['spec'], 'config', 'storage')['files']);
  return files
    .filter(({ path }) => String(path).startsWith('/etc/crio/crio.conf.d/'))
    .sort((a, b) => (String(a['path']) < String(b['path']) ? -1 : 1))
    .flatMap(({ contents }) => {
      const text = readDataUrl(String(fieldsOf(contents)['source'])) ?? '';
      return [...text.matchAll(/^[ \t]*default_runtime[ \t]*=[ \t]*["'](\w+)["']/gm)].map(([, name]) => name);
    })
    .at(-1);
}

/**
 * Finds a feature set with which the operators allow no other minor version (cluster-config-operator,
 * FeatureUpgradeable).
 */
function checkFeatureSet({ featureGates }: ClusterSurvey, [held]: Hops): Finding[] {
  const featureSet = featureSetOf(featureGates);
  if (!held || featureSet?.endsWith('NoUpgrade') !== true) return [];
  const { enabled, disabled } = fieldsAt(featureGates[0]?.['spec'], 'customNoUpgrade');
  const gates = [enabled, disabled].flatMap((list) => (Array.isArray(list) ? list.map(String) : []));
  const names = gates.length === 0 ? '' : ` (${gates.slice(0, 10).join(', ')})`;
  const message = `has the feature set ${featureSet}${names}, which holds the update to ${held[1]}`;
  const subject = { kind: 'FeatureGate', name: 'cluster' };
  return [{ check: 'version', severity: 'warning', subject, message, advice: advice.featureSet }];
}
