import type { Written } from '#config/manifest';
import { agentNamespace } from './upgradeBundle.ts';

/** The account of the agents on every node, or of the controllers on the control plane. */
export type Account = 'agent' | 'controller';

const rbac = 'rbac.authorization.k8s.io';

/** One rule of a role. */
export type AccessRule = NonNullable<Written<'Role'>['rules']>[number];

/** A role or a binding. */
export type AccessObject = Written<'ClusterRole' | 'Role' | 'ClusterRoleBinding' | 'RoleBinding'>;

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
): AccessObject[] {
  const apiVersion = `${rbac}/v1` as const;
  const subjects: Written<'RoleBinding'>['subjects'] = [
    { kind: 'ServiceAccount', name: account, namespace: agentNamespace },
  ];
  const roleRef = (kind: string): Written<'RoleBinding'>['roleRef'] => ({ apiGroup: rbac, kind, name });
  const rolesEverywhere: AccessObject[] = [
    { apiVersion, kind: 'ClusterRole', metadata: { name }, rules: everywhere },
    { apiVersion, kind: 'ClusterRoleBinding', metadata: { name }, roleRef: roleRef('ClusterRole'), subjects },
  ];
  return [
    ...(everywhere.length > 0 ? rolesEverywhere : []),
    ...Object.entries(inNamespaces).flatMap(([namespace, rules]): AccessObject[] => [
      { apiVersion, kind: 'Role', metadata: { name, namespace }, rules },
      { apiVersion, kind: 'RoleBinding', metadata: { name, namespace }, roleRef: roleRef('Role'), subjects },
    ]),
  ];
}
