import { fieldsOf, textOf } from '../../fields.ts';
import { nameSome } from '../../failures.ts';
import { subjectOf, type Finding } from '../../cluster/finding.ts';
import { conditionsOf, type StoredObject } from '../../cluster/storedObject.ts';

/** The signers of the certificates of kubelets (Kubernetes, certificate signing requests). */
const kubeletSigners = ['kubernetes.io/kube-apiserver-client-kubelet', 'kubernetes.io/kubelet-serving'];

/** The largest number of nodes that are named for each signer. */
const shown = 10;

const advice = {
  one: (name: string): string =>
    `Approve it if you expect this node: oc adm certificate approve ${name}. A node without a valid certificate is not updated.`,
  many: 'Look at them (oc get csr), then approve them all: oc get csr -o name | xargs oc adm certificate approve. Repeat it until none is pending, because a kubelet requests its serving certificate after its client certificate. A node without a valid certificate is not updated.',
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
    return [{ ...own, subject, message, advice: advice.one(subject.name) }];
  }
  const counts = [...Map.groupBy(waiting, ({ signer }) => signer)].map(([signer, group]) => {
    const nodes = [...Map.groupBy(group, ({ node }) => node)].map(([node, each]) => `${each.length} for ${node}`);
    return `${signer}: ${nameSome(nodes, shown)}`;
  });
  const message = `${waiting.length} requests of kubelets wait for approval (${counts.sort().join('; ')})`;
  return [{ ...own, subject: { kind: first.request.kind, name: '' }, message, advice: advice.many }];
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
