import { fieldsOf, textOf } from '../../fields.ts';
import type { KubernetesObject } from '../../config/manifest.ts';
import { conditionsOf } from '../../cluster/storedObject.ts';
import { subjectOf, type Check, type Finding, type Severity } from '../../cluster/finding.ts';
import { problemOf } from '../lint/rule.ts';
import { rulesFor } from '../lint/rules.ts';

const advice = {
  operator: (name: string): string =>
    `Fix the operator first: an update waits for each of them. Its conditions have the reason: oc describe clusteroperator ${name}`,
  upgradeable: (name: string): string =>
    `It keeps the cluster at this minor version. Its conditions have the reason: oc describe clusteroperator ${name}`,
  etcd: 'Bring the member up, or replace it: oc get etcd cluster -o yaml, oc -n openshift-etcd get pods -o wide. Its guard lets no other control plane node be drained.',
  paused: (name: string): string =>
    `Resume it, unless it has to wait: oc patch machineconfigpool ${name} --type=merge -p '{"spec":{"paused":false}}'. Its nodes are not updated until then.`,
  updating: 'Wait until all its nodes are updated (oc get machineconfigpools).',
  degraded: (name: string): string =>
    `Its conditions name the node and the reason: oc describe machineconfigpool ${name}`,
  defaults: `Disable the catalogs of OpenShift: oc patch operatorhub cluster --type=merge -p '{"spec":{"disableAllDefaultSources":true}}'. Remove your own, or do not poll them.`,
  catalog:
    'Name its image by digest and remove spec.updateStrategy, or remove the catalog. Installed operators continue to run without it.',
};

/** Checks the operators of OpenShift. `minor`: whether the planned update changes the minor version. */
export function checkOperators(operators: readonly KubernetesObject[], minor: boolean): Finding[] {
  return operators.flatMap((operator) => {
    const { name } = operator.metadata;
    return [
      ...findCondition(operator, 'operators', [
        'Available',
        'False',
        'blocker',
        'is not available',
        advice.operator(name),
      ]),
      ...findCondition(operator, 'operators', ['Degraded', 'True', 'blocker', 'is degraded', advice.operator(name)]),
      ...findCondition(operator, 'operators', [
        ...([
          'Upgradeable',
          'False',
          minor ? 'blocker' : 'info',
          'must not be updated to another minor version',
        ] as const),
        advice.upgradeable(name),
      ]),
    ];
  });
}

/**
 * Checks that etcd keeps its quorum while a control plane node restarts, by the members that the etcd operator reports
 * (openshift/cluster-etcd-operator, pkg/etcdcli/health.go). One member has no quorum to keep.
 */
export function checkEtcdMembers(etcds: readonly KubernetesObject[]): Finding[] {
  return etcds.flatMap((etcd): Finding[] => {
    const { message = '' } = conditionsOf(etcd).get('EtcdMembersAvailable') ?? {};
    const [, healthy, of = healthy] = /^(\d+)(?: of (\d+))? members are available/.exec(message) ?? [];
    const quorum = Math.floor(Number(of) / 2) + 1;
    if (healthy === undefined || Number(of) === 1 || Number(healthy) > quorum) return [];
    const words = `has no quorum while a control plane node restarts: ${message}, and ${quorum} have to stay`;
    return [{ check: 'etcd', severity: 'blocker', subject: subjectOf(etcd), message: words, advice: advice.etcd }];
  });
}

/** Checks the pools of the machine config operator. */
export function checkPools(pools: readonly KubernetesObject[]): Finding[] {
  return pools.flatMap((pool): Finding[] => {
    const paused = fieldsOf(pool['spec'])['paused'] === true;
    const subject = subjectOf(pool);
    const degraded = findCondition(pool, 'pools', [
      'Degraded',
      'True',
      'blocker',
      'is degraded',
      advice.degraded(pool.metadata.name),
    ]);
    const behind = findCondition(pool, 'pools', ['Updated', 'False', 'blocker', 'is not up to date', advice.updating]);
    return [
      ...(paused
        ? [
            {
              check: 'pools' as const,
              severity: 'warning' as const,
              subject,
              message: 'is paused',
              advice: advice.paused(pool.metadata.name),
            },
          ]
        : []),
      ...degraded,
      // A paused pool cannot become up to date, and a degraded pool is reported already.
      ...(paused || degraded.length > 0 ? [] : behind),
    ];
  });
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

type Rule = readonly [type: string, status: string, severity: Severity, what: string, advised: string];

function findCondition(
  object: KubernetesObject,
  check: Check,
  [type, status, severity, what, advised]: Rule,
): Finding[] {
  const condition = conditionsOf(object).get(type);
  if (condition?.status !== status) return [];
  const message = [what, condition.message].filter((part) => part !== '').join(': ');
  return [{ check, severity, subject: subjectOf(object), message, advice: advised }];
}
