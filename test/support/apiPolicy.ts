import { evaluate } from '@marcbachmann/cel-js';
import type { KubernetesObject } from '../../lib/config/manifest.ts';
import type { Json } from './apiPatch.ts';

interface PolicySpec {
  readonly matchConstraints: {
    readonly resourceRules: readonly Record<'apiGroups' | 'resources' | 'operations', string[]>[];
  };
  readonly matchConditions: readonly { readonly expression: string }[];
  readonly variables: readonly { readonly name: string; readonly expression: string }[];
  readonly validations: readonly { readonly expression: string; readonly messageExpression: string }[];
}

/** What is about to be written. */
export interface AdmissionRequest {
  readonly group: string;
  /** With its subresource: `pods/ephemeralcontainers`. */
  readonly resource: string;
  readonly object: Json;
  /** Absent for what is created. */
  readonly oldObject?: Json;
}

/** What a ValidatingAdmissionPolicy says to a request, as an API server evaluates it; empty when it has nothing against it. */
export function evaluatePolicy(policy: KubernetesObject, request: AdmissionRequest): string[] {
  const spec = policy['spec'] as PolicySpec;
  const { group, resource, object, oldObject = null } = request;
  const operation = oldObject === null ? 'CREATE' : 'UPDATE';
  const isMatched = spec.matchConstraints.resourceRules.some(
    ({ apiGroups, resources, operations }) =>
      apiGroups.includes(group) && resources.includes(resource) && operations.includes(operation),
  );
  const { namespace } = object['metadata'] as { namespace: string };
  const variables: Json = {};
  const scope = { object, oldObject, request: { namespace, operation }, variables };
  if (!isMatched || !spec.matchConditions.every(({ expression }) => evaluate(expression, scope) === true)) return [];
  for (const { name, expression } of spec.variables) variables[name] = evaluate(expression, scope);
  return spec.validations
    .filter(({ expression }) => evaluate(expression, scope) !== true)
    .map(({ messageExpression }) => String(evaluate(messageExpression, scope)));
}
