import { userOf, allow, grantAccess, type Account } from '../accountAccess.ts';
import type { KubernetesObject } from '../../config/manifest.ts';
import { reportMap } from '../report/reportKey.ts';
import { agentNamespace } from '../upgradeBundle.ts';

/** The argument with which controllers make reports, and agents write them onto drives. */
export const reportsArgument = '--reports';

const name = (account: Account): string => `${agentNamespace}-${account}-reports`;
const [configMaps, logs] = [['configmaps'], ['pods/log']];
const own = [reportMap.metadata.name];

/**
 * Returns the access that reports need. The controller reads what `preflight` reads, by OpenShift’s own role for that,
 * which shows no Secrets. It changes one ConfigMap. Agents read that ConfigMap.
 */
export function reportAccess(): KubernetesObject[] {
  const [namespace, kind] = [agentNamespace, 'ServiceAccount'];
  return [
    {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name: name('controller') },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'cluster-reader' },
      subjects: [{ kind, name: 'controller', namespace }],
    },
    ...grantAccess(name('controller'), 'controller', [], {
      [agentNamespace]: [allow('', configMaps, ['get', 'patch'], own), allow('', logs, ['get'])],
      'openshift-cluster-version': [allow('', logs, ['get'])],
    }),
    ...grantAccess(name('agent'), 'agent', [], { [agentNamespace]: [allow('', configMaps, ['get'], own)] }),
  ];
}

/** The CEL expression that is true for a write of the report by the controller. */
export const writesReport =
  `(request.userInfo.username == '${userOf('controller')}' && object.metadata.namespace == '${agentNamespace}' && ` +
  `object.metadata.name == '${reportMap.metadata.name}')`;

/** The objects that an installation without reports does not have. The key stays, because engineers know it. */
export const reportReferences = [
  ...reportAccess().map(({ apiVersion, kind, metadata: { name: own, namespace } }) => ({
    ...{ apiVersion, kind, metadata: { name: own, ...(namespace !== undefined && { namespace }) } },
  })),
  reportMap,
];
