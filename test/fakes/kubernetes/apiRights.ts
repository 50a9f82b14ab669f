import type { Attempt } from './apiAccess.ts';
import type { Json } from './apiPatch.ts';

/** A rule of a role. */
export type Rule = Readonly<Record<string, readonly string[] | undefined>>;

interface Subject {
  readonly kind: string;
  readonly name: string;
  readonly namespace?: string;
}

/**
 * Returns the decision of RBAC about a request, from roles and their bindings. A binding in a namespace gives rights in
 * that namespace, and a right for a resource is none for its subresources.
 */
export function readRights(objects: readonly Json[]): (attempt: Attempt) => boolean {
  const roles = new Map(objects.map((object) => [keyOf(object), (object['rules'] ?? []) as readonly Rule[]]));
  const bindings = objects.flatMap((object) => {
    const { kind, metadata, roleRef, subjects = [] } = object;
    if (kind !== 'ClusterRoleBinding' && kind !== 'RoleBinding') return [];
    const { namespace = '' } = metadata as { namespace?: string };
    const role = roleRef as { kind: string; name: string };
    const place = role.kind === 'Role' ? { namespace } : {};
    const rules = roles.get(keyOf({ kind: role.kind, metadata: { name: role.name, ...place } })) ?? [];
    return [
      { rules, subjects: subjects as readonly Subject[], namespace: kind === 'RoleBinding' ? namespace : undefined },
    ];
  });
  return (attempt) =>
    bindings.some(
      ({ rules, subjects, namespace }) =>
        (namespace === undefined || namespace === attempt.namespace) &&
        subjects.some((subject) => isSubject(subject, attempt)) &&
        rules.some((rule) => allows(rule, attempt)),
    );
}

function isSubject({ kind, name, namespace = '' }: Subject, { user, groups }: Attempt): boolean {
  if (kind === 'Group') return groups.includes(name);
  return user === (kind === 'ServiceAccount' ? `system:serviceaccount:${namespace}:${name}` : name);
}

function allows(
  { apiGroups = [], resources = [], verbs = [], resourceNames = [] }: Rule,
  { group, resource, verb, name }: Attempt,
): boolean {
  const [, subresource] = resource.split('/');
  const named = ['*', resource, ...(subresource === undefined ? [] : [`*/${subresource}`])];
  return (
    [group, '*'].some((each) => apiGroups.includes(each)) &&
    named.some((each) => resources.includes(each)) &&
    [verb, '*'].some((each) => verbs.includes(each)) &&
    (resourceNames.length === 0 || resourceNames.includes(name))
  );
}

function keyOf({ kind, metadata }: Json): string {
  const { namespace = '', name } = metadata as { namespace?: string; name: string };
  return `${String(kind)} ${namespace}/${name}`;
}

/** Returns the single rights of a rule for resources. */
export function rightsOf({ apiGroups = [], resources = [], verbs = [], resourceNames = [] }: Rule) {
  const names = resourceNames.length === 0 ? [''] : resourceNames;
  return apiGroups.flatMap((group) =>
    resources.flatMap((resource) => verbs.flatMap((verb) => names.map((name) => ({ group, resource, verb, name })))),
  );
}
