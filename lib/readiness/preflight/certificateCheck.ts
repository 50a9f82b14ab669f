import { listDenied } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding } from '#cluster/finding';
import { conditionsOf, type StoredObject } from '#cluster/objects';
import { blocks } from '#cluster/version';
import { nameSome } from '#errors';
import { fieldsOf, listOf, textOf } from '#fields';
import { shellCommand } from '#text';
import type { ClusterSurvey } from './survey.ts';

const hour = 3_600_000;
/** The time that an update may take, in milliseconds. */
const updateTime = 24 * hour;
/**
 * Operators renew certificates after 50 to 80 percent of their validity (openshift/library-go,
 * pkg/operator/certrotation).
 */
const leftShare = 0.1;

/**
 * The namespaces with the certificates of the control plane and of services. Each has the names of certificates that a
 * component reads without mounting them: signers, and files of static pods (cluster-kube-apiserver-operator,
 * pkg/operator/starter.go CertSecrets; cluster-etcd-operator, pkg/tlshelpers).
 */
const loadedSecrets = {
  'openshift-kube-apiserver-operator':
    /^(?:aggregator-client|kube-apiserver-to-kubelet|kube-control-plane|(?:loadbalancer|localhost|service-network|localhost-recovery)-serving)-signer$/,
  'openshift-kube-apiserver':
    /^(?:aggregator-client|check-endpoints-client-cert-key|control-plane-node-admin-client-cert-key|kubelet-client|(?:external-loadbalancer|internal-loadbalancer|localhost-recovery|service-network)-serving-certkey|localhost-serving-cert-certkey)$/,
  'openshift-kube-controller-manager-operator': /^csr-signer(?:-signer)?$/,
  'openshift-etcd':
    /^etcd-(?:signer|metrics?-signer|client|metrics?-client|(?:peer|serving|serving-metrics)-(?<node>.+))$/,
  'openshift-service-ca': /^signing-key$/,
} as const;

const namespaces = Object.keys(loadedSecrets) as (keyof typeof loadedSecrets)[];

/** The annotations of certificates that operators renew (openshift/library-go). */
const [notBefore, notAfter] = ['before', 'after'].map((end) => `auth.openshift.io/certificate-not-${end}`) as [
  string,
  string,
];

const advice = {
  renew: (namespace: string): string =>
    'Its operator should have renewed it, and its log has the reason: ' +
    shellCommand`oc get clusteroperators, oc -n ${namespace} get pods.`,
  kubelet:
    'Its kubelet renews it. If a request waits, approve it: oc get csr, oc adm certificate approve NAME. A node ' +
    'whose certificate has expired is not updated.',
  unused: 'Nothing: it is left from a removed node or from an earlier release.',
  rights: 'Run this as a user who may list the metadata of Secrets there, such as cluster-admin.',
};

/**
 * Finds certificates of the control plane and of kubelets that nothing has renewed in time. One that has expired
 * blocks, if a running component loads it: others are left from removed nodes, or from earlier releases. Reads only the
 * metadata of Secrets. Throws the errors of the cluster.
 */
export async function checkCertificates(
  cluster: Cluster,
  { kubeletCertificates, nodes, workloads }: Pick<ClusterSurvey, 'kubeletCertificates' | 'nodes' | 'workloads'>,
  now = cluster.now(),
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
        const loaded = isLoaded(namespace, each.metadata.name, nodes, workloads);
        if (!loaded && remaining >= 0) return [];
        const words = `${remaining < 0 ? 'has expired' : 'is not renewed, and expires'} at ${annotations[notAfter] ?? ''}`;
        return [
          loaded
            ? {
                ...(remaining < 0 ? blocks('certificate') : ({ severity: 'warning' } as const)),
                check: 'certificates',
                subject: subjectOf(each),
                message: words,
                advice: advice.renew(namespace),
              }
            : {
                check: 'certificates',
                severity: 'info',
                subject: subjectOf(each),
                message: `${words}; no running component loads it`,
                advice: advice.unused,
              },
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
    const weight = seconds <= 0 ? blocks('kubeletCertificate') : ({ severity: 'warning' } as const);
    return [{ check: 'certificates', ...weight, subject, message, advice: advice.kubelet }];
  });
  return [...findings.flat(), ...kubelets];
}

/** Returns whether a running component loads a Secret: it is known to, or a running pod mounts it. */
function isLoaded(
  namespace: keyof typeof loadedSecrets,
  name: string,
  nodes: readonly StoredObject[],
  workloads: readonly StoredObject[],
): boolean {
  const known = loadedSecrets[namespace].exec(name);
  const node = known?.groups?.['node'];
  if (known && (node === undefined || nodes.some(({ metadata }) => metadata.name === node))) return true;
  const pods = workloads.filter(
    ({ kind, metadata, status }) =>
      kind === 'Pod' && metadata.namespace === namespace && fieldsOf(status)['phase'] === 'Running',
  );
  return pods.some(({ spec }) =>
    listOf(fieldsOf(spec)['volumes']).some(({ secret, projected }) => {
      const sources = listOf(fieldsOf(projected)['sources']).map((source) => fieldsOf(source['secret'])['name']);
      return [fieldsOf(secret)['secretName'], ...sources].includes(name);
    }),
  );
}

/** The signers of the certificates of kubelets (Kubernetes, certificate signing requests). */
const kubeletSigners = ['kubernetes.io/kube-apiserver-client-kubelet', 'kubernetes.io/kubelet-serving'];

/** The largest number of nodes that are named for each signer. */
const shownNodes = 10;

const requestAdvice = {
  one: (name: string): string =>
    'Approve it if you expect this node: ' +
    shellCommand`oc adm certificate approve ${name}. A node without a valid certificate is not updated.`,
  many:
    'Look at them (oc get csr), then approve them all: oc get csr -o name | xargs oc adm certificate approve. ' +
    'Repeat it until none is pending, because a kubelet requests its serving certificate after its client ' +
    'certificate. A node without a valid certificate is not updated.',
};

/**
 * Finds requests of kubelets for certificates that wait for a person, in one finding with their number for each signer
 * and node. After a long time without power there are hundreds, because kubelets repeat them.
 */
export function checkSigningRequests(requests: readonly StoredObject[]): Finding[] {
  const waiting = requests.flatMap((request) => {
    const { signerName, username, request: encoded } = fieldsOf(request['spec']);
    const conditions = conditionsOf(request);
    const isDecided = ['Approved', 'Denied', 'Failed'].some((type) => conditions.has(type));
    if (isDecided || !kubeletSigners.includes(String(signerName))) return [];
    const [user, text] = [textOf(username) ?? 'a node', textOf(encoded) ?? ''];
    return [{ request, signer: String(signerName), node: nodeIn(user) ?? readCommonName(text) ?? user }];
  });
  const [first] = waiting;
  if (!first) return [];
  const own = { check: 'nodes', severity: 'warning' } as const;
  if (waiting.length === 1) {
    const subject = subjectOf(first.request);
    const message = `waits for approval: a certificate (${first.signer}) for ${first.node}`;
    return [{ ...own, subject, message, advice: requestAdvice.one(subject.name) }];
  }
  const counts = [...Map.groupBy(waiting, ({ signer }) => signer)].map(([signer, group]) => {
    const nodes = [...Map.groupBy(group, ({ node }) => node)].map(([node, each]) => `${each.length} for ${node}`);
    return `${signer}: ${nameSome(nodes, shownNodes)}`;
  });
  const message = `${waiting.length} requests of kubelets wait for approval (${counts.sort().join('; ')})`;
  return [{ ...own, subject: { kind: first.request.kind, name: '' }, message, advice: requestAdvice.many }];
}

const userPrefix = 'system:node:';

function nodeIn(user: string): string | undefined {
  return user.startsWith(userPrefix) ? user.slice(userPrefix.length) : undefined;
}

/**
 * Returns the node in the common name of a request in PEM, in base64. New nodes send their first request as another
 * user. In DER (RFC 2986), the byte before a short string is its length.
 */
function readCommonName(encoded: string): string | undefined {
  const pem = Buffer.from(encoded, 'base64').toString('latin1');
  const der = Buffer.from(pem.replace(/-----[A-Z ]+-----/g, ''), 'base64');
  const at = der.indexOf(userPrefix);
  return at < 1 ? undefined : nodeIn(der.toString('utf8', at, at + (der[at - 1] ?? 0)));
}
