import type { KubernetesObject } from '#config/manifest';
import { agentNamespace } from './upgradeBundle.ts';

/** The account of the agents on every node, or of the controllers on the control plane. */
export type Account = 'agent' | 'controller';

const rbac = 'rbac.authorization.k8s.io';

/** One rule of a role. */
export interface AccessRule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly verbs: readonly string[];
}

/** The rules of an account: cluster-wide, and by namespace. */
export type AccountRules = readonly [
  everywhere: readonly AccessRule[],
  inNamespaces: Readonly<Record<string, readonly AccessRule[]>>,
];

/** Returns the rule that allows verbs on resources, or on those with some names. */
export function allow(
  group: string,
  resources: readonly string[],
  verbs: readonly string[],
  names?: readonly string[],
): AccessRule {
  return { apiGroups: [group], resources, verbs, ...(names && { resourceNames: names }) };
}

/** Returns the user name of an account in requests. */
export function userOf(account: Account): string {
  return `system:serviceaccount:${agentNamespace}:${account}`;
}

/** Returns the roles and bindings of a name that give an account its rules. */
export function grantAccess(
  name: string,
  account: Account,
  ...[everywhere, inNamespaces]: AccountRules
): KubernetesObject[] {
  const bind = (kind: string, role: string, place: { namespace?: string }): KubernetesObject => ({
    apiVersion: `${rbac}/v1`,
    kind,
    metadata: { name, ...place },
    roleRef: { apiGroup: rbac, kind: role, name },
    subjects: [{ kind: 'ServiceAccount', name: account, namespace: agentNamespace }],
  });
  const rolesEverywhere = [
    { apiVersion: `${rbac}/v1`, kind: 'ClusterRole', metadata: { name }, rules: everywhere },
    bind('ClusterRoleBinding', 'ClusterRole', {}),
  ];
  return [
    ...(everywhere.length > 0 ? rolesEverywhere : []),
    ...Object.entries(inNamespaces).flatMap(([namespace, rules]) => [
      { apiVersion: `${rbac}/v1`, kind: 'Role', metadata: { name, namespace }, rules },
      bind('RoleBinding', 'Role', { namespace }),
    ]),
  ];
}
