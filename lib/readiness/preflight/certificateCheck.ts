import type { Cluster } from '../../cluster/client.ts';
import { listDenied } from '../../cluster/accessReview.ts';
import { subjectOf, type Finding } from '../../cluster/finding.ts';
import type { ClusterSurvey } from './survey.ts';

const hour = 3_600_000;
/** The time that an update may take, in milliseconds. */
const updateTime = 24 * hour;
/** Operators renew certificates after 50 to 80 percent of their validity (openshift/library-go, pkg/operator/certrotation). */
const leftShare = 0.1;

/** The namespaces with the signers and certificates of the control plane and of services. */
const namespaces = [
  'openshift-kube-apiserver-operator',
  'openshift-kube-apiserver',
  'openshift-kube-controller-manager-operator',
  'openshift-etcd',
  'openshift-service-ca',
] as const;

/** The annotations of certificates that operators renew (openshift/library-go). */
const [notBefore, notAfter] = ['before', 'after'].map((end) => `auth.openshift.io/certificate-not-${end}`) as [
  string,
  string,
];

const advice = {
  renew: (namespace: string): string =>
    `Its operator should have renewed it, and its log has the reason: oc get clusteroperators, oc -n ${namespace} get pods.`,
  kubelet:
    'Its kubelet renews it. If a request waits, approve it: oc get csr, oc adm certificate approve NAME. A node whose certificate has expired is not updated.',
  rights: 'Run this as a user who may list the metadata of Secrets there, such as cluster-admin.',
};

/**
 * Finds certificates of the control plane and of kubelets that nothing has renewed in time. One that expires while an
 * update runs blocks. Reads only the metadata of Secrets. Throws the errors of the cluster.
 */
export async function checkCertificates(
  cluster: Cluster,
  { kubeletCertificates }: Pick<ClusterSurvey, 'kubeletCertificates'>,
  now = Date.now(),
): Promise<Finding[]> {
  const secrets = { apiVersion: 'v1', kind: 'Secret' };
  const findings = await Promise.all(
    namespaces.map(async (namespace): Promise<Finding[]> => {
      const object = { ...secrets, metadata: { name: '', namespace } };
      const [denied] = await listDenied(cluster, [{ verb: 'list', object }]);
      if (denied !== undefined) {
        const message = `you may not ${denied}: when its certificates expire is unknown`;
        return [
          {
            check: 'rights',
            severity: 'info',
            subject: { kind: 'Secret', name: '', namespace },
            message,
            advice: advice.rights,
          },
        ];
      }
      const objects = await cluster.listMetadata('v1', 'Secret', namespace);
      return objects.flatMap((each): Finding[] => {
        const { annotations = {} } = each.metadata;
        const [begin, end] = [Date.parse(annotations[notBefore] ?? ''), Date.parse(annotations[notAfter] ?? '')];
        const remaining = end - now;
        if (!(remaining < (end - begin) * leftShare || remaining < 0)) return [];
        const severity = remaining < updateTime ? 'blocker' : 'warning';
        const message = `${remaining < 0 ? 'has expired' : 'is not renewed, and expires'} at ${annotations[notAfter] ?? ''}`;
        return [
          { check: 'certificates', severity, subject: subjectOf(each), message, advice: advice.renew(namespace) },
        ];
      });
    }),
  );
  const kubelets = [...kubeletCertificates].flatMap(([name, seconds]): Finding[] => {
    if (seconds * 1000 >= updateTime) return [];
    const subject = { kind: 'Node', name };
    const message =
      seconds <= 0
        ? 'has a kubelet whose certificate has expired'
        : `has a kubelet whose certificate expires in ${(seconds / 3600).toFixed(0)} h`;
    // The first certificate of a new node is valid for a day.
    const severity = seconds <= 0 ? 'blocker' : 'warning';
    return [{ check: 'certificates', severity, subject, message, advice: advice.kubelet }];
  });
  return [...findings.flat(), ...kubelets];
}
