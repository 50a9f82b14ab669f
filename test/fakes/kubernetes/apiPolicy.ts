import { evaluate } from '@marcbachmann/cel-js';
import type { KubernetesObject } from '../../../lib/config/manifest.ts';
import type { Json } from './apiPatch.ts';

interface PolicySpec {
  readonly matchConstraints: {
    readonly resourceRules: readonly Record<'apiGroups' | 'resources' | 'operations', string[]>[];
    readonly namespaceSelector?: { readonly matchLabels: Readonly<Record<string, string>> };
  };
  readonly matchConditions: readonly { readonly expression: string }[];
  readonly variables?: readonly { readonly name: string; readonly expression: string }[];
  readonly validations: readonly {
    readonly expression: string;
    readonly message?: string;
    readonly messageExpression?: string;
  }[];
}

/** A write to check. */
export interface AdmissionRequest {
  readonly group: string;
  /** The resource with its subresource: `pods/ephemeralcontainers`. */
  readonly resource: string;
  /** The new object; null for a deletion. */
  readonly object: Json | null;
  /** The old object; undefined or null for a creation. */
  readonly oldObject?: Json | null;
  /** The namespace; by default that of the object. */
  readonly namespace?: string;
  /** Whether the write is a dry run. */
  readonly dryRun?: boolean;
  readonly user?: { readonly username: string; readonly extra?: Readonly<Record<string, readonly string[]>> };
}

/** Returns whether a binding makes the API server refuse what a policy does not allow. */
export function isEnforced(policy: KubernetesObject, bindings: readonly KubernetesObject[]): boolean {
  return bindings.some((binding) => {
    const spec = binding['spec'] as { readonly policyName: string; readonly validationActions: readonly string[] };
    return spec.policyName === policy.metadata.name && spec.validationActions.includes('Deny');
  });
}

/**
 * Evaluates a ValidatingAdmissionPolicy as an API server does. Returns its messages; empty if it allows the request.
 */
export function evaluatePolicy(policy: KubernetesObject, request: AdmissionRequest): string[] {
  const spec = policy['spec'] as PolicySpec;
  const {
    group,
    resource,
    object,
    oldObject = null,
    dryRun = false,
    user: userInfo = { username: 'somebody' },
  } = request;
  const operation = object === null ? 'DELETE' : oldObject === null ? 'CREATE' : 'UPDATE';
  const { resourceRules, namespaceSelector } = spec.matchConstraints;
  const isMatched = resourceRules.some(
    ({ apiGroups, resources, operations }) =>
      apiGroups.includes(group) && resources.includes(resource) && operations.includes(operation),
  );
  const { namespace = request.namespace ?? '' } = ((object ?? oldObject)?.['metadata'] ?? {}) as { namespace?: string };
  const wanted = namespaceSelector?.matchLabels['kubernetes.io/metadata.name'];
  if (!isMatched || (wanted !== undefined && wanted !== namespace)) return [];
  const variables: Json = {};
  const scope = { object, oldObject, request: { namespace, operation, userInfo, dryRun }, variables };
  if (!spec.matchConditions.every(({ expression }) => evaluate(expression, scope) === true)) return [];
  for (const { name, expression } of spec.variables ?? []) variables[name] = evaluate(expression, scope);
  return spec.validations
    .filter(({ expression }) => evaluate(expression, scope) !== true)
    .map(({ message = '', messageExpression }) =>
      messageExpression === undefined ? message : String(evaluate(messageExpression, scope)),
    );
}
