import type { KubernetesObject } from '../../config/manifest.ts';
import { userOf } from '../accountAccess.ts';
import { accountLimits } from './accountLimits.ts';
import { agentNamespace } from '../upgradeBundle.ts';

const api = 'admissionregistration.k8s.io/v1';

/**
 * Returns the policies (ValidatingAdmissionPolicy, Kubernetes 1.30 and OpenShift 4.17) that limit the writes of the
 * agents’ and the controller’s accounts further than roles can. They apply to no other account. They refuse a request
 * that they cannot evaluate.
 */
export function accountPolicies(): KubernetesObject[] {
  return accountLimits.flatMap(
    ({ name: subject, group, version, resource, operations, namespace, condition, variables = {}, validations }) => {
      const name = `${agentNamespace}-${subject}`;
      const resourceRules = [{ apiGroups: [group], apiVersions: [version], operations, resources: [resource] }];
      const place = namespace === undefined ? {} : { matchLabels: { 'kubernetes.io/metadata.name': namespace } };
      const policy = {
        apiVersion: api,
        kind: 'ValidatingAdmissionPolicy',
        metadata: { name },
        spec: {
          failurePolicy: 'Fail',
          matchConstraints: { resourceRules, ...(namespace !== undefined && { namespaceSelector: place }) },
          matchConditions: [
            {
              name: 'our-accounts',
              expression: `request.userInfo.username in ['${userOf('agent')}', '${userOf('controller')}']`,
            },
            ...(condition === undefined ? [] : [{ name: 'subject', expression: condition }]),
          ],
          ...(Object.keys(variables).length > 0 && {
            variables: Object.entries(variables).map(([each, expression]) => ({ name: each, expression })),
          }),
          validations: validations.map(([expression, message]) => ({ expression, message, reason: 'Forbidden' })),
        },
      };
      const spec = { policyName: name, validationActions: ['Deny'] };
      return [policy, { apiVersion: api, kind: 'ValidatingAdmissionPolicyBinding', metadata: { name }, spec }];
    },
  );
}
