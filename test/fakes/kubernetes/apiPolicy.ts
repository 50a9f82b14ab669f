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
    readonly reason?: string;
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

/** Why a policy refuses a request. */
export interface PolicyRefusal {
  readonly message: string;
  readonly reason: string;
}

/** Returns the name of a binding that makes the API server refuse what a policy does not allow; undefined for none. */
export function findBinding(policy: KubernetesObject, bindings: readonly KubernetesObject[]): string | undefined {
  return bindings.find((binding) => {
    const spec = binding['spec'] as { readonly policyName: string; readonly validationActions: readonly string[] };
    return spec.policyName === policy.metadata.name && spec.validationActions.includes('Deny');
  })?.metadata.name;
}

/** Returns the messages of `evaluatePolicy`. */
export function listMessages(policy: KubernetesObject, request: AdmissionRequest): string[] {
  return evaluatePolicy(policy, request).map(({ message }) => message);
}

/**
 * Evaluates a ValidatingAdmissionPolicy as an API server does. Returns why it refuses the request; empty if it allows
 * it.
 */
export function evaluatePolicy(policy: KubernetesObject, request: AdmissionRequest): PolicyRefusal[] {
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
    .map(({ message = '', messageExpression, reason = 'Invalid' }) => ({
      message: messageExpression === undefined ? message : String(evaluate(messageExpression, scope)),
      reason,
    }));
}
