import { subjectOf, type Check, type Finding, type Weight } from '#cluster/finding';
import { conditionsOf } from '#cluster/objects';
import { blocks } from '#cluster/version';
import type { KubernetesObject } from '#config/manifest';
import { fieldsOf, textOf } from '#fields';
import { shellCommand } from '#text';
import { problemOf } from '../lint/report.ts';
import { rulesFor } from '../lint/rules.ts';

const advice = {
  operator: (name: string): string =>
    'Fix the operator first: an update waits for each of them. ' +
    shellCommand`Its conditions have the reason: oc describe clusteroperator ${name}`,
  upgradeable: (name: string): string =>
    'It keeps the cluster at this minor version. Its conditions have the reason: ' +
    shellCommand`oc describe clusteroperator ${name}`,
  etcd:
    'Bring the member up, or replace it: oc get etcd cluster -o yaml, oc -n openshift-etcd get pods -o wide. Its ' +
    'guard lets no other control plane node be drained.',
  paused: (name: string): string =>
    'Resume it, unless it has to wait: ' +
    shellCommand`oc patch machineconfigpool ${name} --type=merge -p '{"spec":{"paused":false}}'. ` +
    'Its nodes are not updated until then.',
  topology: 'Check by hand that the control plane works without one of its nodes.',
  updating:
    'Wait until all its nodes are updated (oc get machineconfigpools), or continue: they then restart twice, ' +
    'about 15 minutes each.',
  degraded: (name: string): string =>
    shellCommand`Its conditions name the node and the reason: oc describe machineconfigpool ${name}`,
  pins:
    'Nothing, if agents run: they load lost images again from a copy of the bundle, and report an image that has ' +
    'none. The pool is degraded until then.',
  defaults:
    'Disable the catalogs of OpenShift: oc patch operatorhub cluster --type=merge -p ' +
    `'{"spec":{"disableAllDefaultSources":true}}'. Remove your own, or do not poll them.`,
  catalog:
    'Name its image by digest and remove spec.updateStrategy, or remove the catalog. Installed operators ' +
    'continue to run without it.',
};

/** Checks the operators of OpenShift. `minor`: whether the planned update changes the minor version. */
export function checkOperators(operators: readonly KubernetesObject[], minor: boolean): Finding[] {
  return operators.flatMap((operator) => {
    const { name } = operator.metadata;
    const waits = blocks('operator');
    const keeps: Weight = minor ? blocks('upgradeable') : { severity: 'info' };
    const held = 'must not be updated to another minor version';
    return [
      ...findCondition(operator, 'operators', ['Available', 'False', waits, 'is not available', advice.operator(name)]),
      ...findCondition(operator, 'operators', ['Degraded', 'True', waits, 'is degraded', advice.operator(name)]),
      ...findCondition(operator, 'operators', ['Upgradeable', 'False', keeps, held, advice.upgradeable(name)]),
    ];
  });
}

/** What an infrastructure says about the control plane (openshift/api, config/v1, TopologyMode). */
const topologies = ['HighlyAvailable', 'SingleReplica', 'DualReplica', 'HighlyAvailableArbiter', 'External'];

/** Returns how a cluster runs its control plane, such as `HighlyAvailable`; empty if it does not say. */
export function topologyOf(infrastructures: readonly KubernetesObject[]): string {
  const [topology] = infrastructures.flatMap(({ status }) => textOf(fieldsOf(status)['controlPlaneTopology']) ?? []);
  return topology ?? '';
}

/**
 * Checks that etcd keeps its quorum while a control plane node restarts, by the members that the etcd operator reports
 * (openshift/cluster-etcd-operator, pkg/etcdcli/health.go). One member has no quorum to keep. Of two members with
 * fencing (DualReplica), pacemaker keeps the quorum for the other one (openshift/enhancements, two-node fencing).
 */
export function checkEtcdMembers(
  etcds: readonly KubernetesObject[],
  infrastructures: readonly KubernetesObject[],
): Finding[] {
  const topology = topologyOf(infrastructures);
  if (topology !== '' && !topologies.includes(topology)) {
    const [subject = { kind: 'Infrastructure', name: 'cluster' }] = infrastructures.map(subjectOf);
    const message = `has a control plane of the unknown topology ${topology}: whether etcd keeps its quorum is not checked`;
    return [{ check: 'etcd', severity: 'warning', subject, message, advice: advice.topology }];
  }
  return etcds.flatMap((etcd): Finding[] => {
    const { message = '' } = conditionsOf(etcd).get('EtcdMembersAvailable') ?? {};
    const [, healthy, of = healthy] = /^(\d+)(?: of (\d+))? members are available/.exec(message) ?? [];
    if (healthy === undefined || Number(of) === 1) return [];
    const remaining = topology === 'DualReplica' ? 1 : Math.floor(Number(of) / 2) + 1;
    if (Number(healthy) > remaining) return [];
    const words = `has no quorum while a control plane node restarts: ${message}, and ${remaining} have to stay`;
    return [{ check: 'etcd', ...blocks('quorum'), subject: subjectOf(etcd), message: words, advice: advice.etcd }];
  });
}

const behind: ConditionRule = ['Updated', 'False', { severity: 'warning' }, 'is not up to date', advice.updating];

/** The label of pools without which an update does not end; by default that of the control plane. */
const requiredLabel = 'operator.machineconfiguration.openshift.io/required-for-upgrade';

/**
 * Checks the pools of the machine config operator. `isOurs`: whether this program has paused a pool, and resumes it.
 * `isRepairing`: whether agents give back the images whose loss degrades a pool.
 */
export function checkPools(
  pools: readonly KubernetesObject[],
  isOurs: (pool: KubernetesObject) => boolean = () => false,
  isRepairing = false,
): Finding[] {
  return pools.flatMap((pool): Finding[] => {
    const { name, labels = {} } = pool.metadata;
    const isPaused = fieldsOf(pool['spec'])['paused'] === true;
    const isRequired = name === 'master' || requiredLabel in labels;
    const find = (weight: Weight, message: string, advised: string): Finding => {
      return { check: 'pools', ...weight, subject: subjectOf(pool), message, advice: advised };
    };
    const degraded = describeDegraded(pool);
    const holds: Weight = isRequired && !isOurs(pool) ? blocks('pausedPool') : { severity: 'warning' };
    return [
      ...(isPaused ? [find(holds, 'is paused', advice.paused(name))] : []),
      ...(degraded === undefined
        ? []
        : isRepairing && isDegradedByPins(pool)
          ? [find({ severity: 'warning' }, withReason('is degraded', degraded), advice.pins)]
          : [find(blocks('degradedPool'), withReason('is degraded', degraded), advice.degraded(name))]),
      // A paused pool cannot become up to date, and a degraded pool is reported already.
      ...(isPaused || degraded !== undefined ? [] : findCondition(pool, 'pools', behind)),
    ];
  });
}

/**
 * Returns why a pool is degraded, empty if it does not say; undefined if it is not. The machine config operator leaves
 * the message of Degraded empty unless nodes are degraded.
 */
export function describeDegraded(pool: KubernetesObject): string | undefined {
  const conditions = conditionsOf(pool);
  const degraded = conditions.get('Degraded');
  if (degraded?.status !== 'True') return undefined;
  const causes = ['NodeDegraded', 'RenderDegraded', 'PinnedImageSetsDegraded'].map((type) => conditions.get(type));
  return degraded.message || (causes.find((each) => each?.status === 'True')?.message ?? '');
}

/** Returns whether nothing but pins degrades a pool: an image is missing that the machine config daemon cannot pull. */
function isDegradedByPins(pool: KubernetesObject): boolean {
  const conditions = conditionsOf(pool);
  const is = (type: string): boolean => conditions.get(type)?.status === 'True';
  return is('PinnedImageSetsDegraded') && !is('NodeDegraded') && !is('RenderDegraded');
}

/** Finds catalogs that need a registry: to poll for a newer image, or to resolve a tag. */
export function checkCatalogs(catalogs: readonly KubernetesObject[]): Finding[] {
  return catalogs.flatMap((catalog): Finding[] => {
    const spec = fieldsOf(catalog['spec']);
    if (textOf(spec['image']) === undefined) return [];
    const reasons = rulesFor.catalog.flatMap((rule) => rule.find(spec).map(({ value }) => problemOf(rule, value)));
    if (reasons.length === 0) return [];
    const isDefault = /^(?:redhat-operators|certified-operators|community-operators|redhat-marketplace)$/.test(
      catalog.metadata.name,
    );
    const subject = subjectOf(catalog);
    return [
      {
        check: 'catalogs',
        severity: 'warning',
        subject,
        message: reasons.join(', and '),
        advice: isDefault ? advice.defaults : advice.catalog,
      },
    ];
  });
}

/** A finding if a condition of an object has a status. */
export type ConditionRule = readonly [type: string, status: string, weight: Weight, what: string, advised: string];

/** Finds that a condition of an object has the status of a rule. */
export function findCondition(
  object: KubernetesObject,
  check: Check,
  [type, status, weight, what, advised]: ConditionRule,
): Finding[] {
  const condition = conditionsOf(object).get(type);
  if (condition?.status !== status) return [];
  const message = withReason(what, condition.message);
  return [{ check, ...weight, subject: subjectOf(object), message, advice: advised }];
}

function withReason(what: string, reason: string): string {
  return reason === '' ? what : `${what}: ${reason}`;
}
