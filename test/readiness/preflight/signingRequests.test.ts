import 'reflect-metadata';
import { expect } from 'chai';
import { Pkcs10CertificateRequestGenerator } from '@peculiar/x509';
import type { StoredObject } from '../../../lib/cluster/storedObject.ts';
import { checkSigningRequests } from '../../../lib/readiness/preflight/signingRequests.ts';

const [client, serving] = ['kubernetes.io/kube-apiserver-client-kubelet', 'kubernetes.io/kubelet-serving'];
const bootstrapper = 'system:serviceaccount:openshift-machine-config-operator:node-bootstrapper';

describe('checkSigningRequests', () => {
  let count = 0;
  const request = (spec: object, type?: string): StoredObject => ({
    ...{ apiVersion: 'certificates.k8s.io/v1', kind: 'CertificateSigningRequest' },
    metadata: { name: `csr-${(count += 1)}` },
    spec,
    status: { conditions: type === undefined ? [] : [{ type, status: 'True' }] },
  });
  const of = (signerName: string, username: string, type?: string): StoredObject =>
    request({ signerName, username }, type);
  const find = (requests: readonly StoredObject[]): string[] =>
    checkSigningRequests(requests).map(({ severity, subject, message }) => `${severity} ${subject.name} ${message}`);

  beforeEach(() => {
    count = 0;
  });

  it('finds requests of kubelets until they are decided', () => {
    const found = checkSigningRequests([
      of(serving, 'system:node:worker-1'),
      of(client, 'system:node:worker-1', 'Approved'),
      of(serving, 'system:node:worker-1', 'Denied'),
      of('example.com/other', 'system:node:worker-1'),
    ]);
    expect(found.map(({ severity, subject, message }) => `${severity} ${subject.name} ${message}`)).to.deep.equal([
      'warning csr-1 waits for approval: a certificate (kubernetes.io/kubelet-serving) for worker-1',
    ]);
    expect(found[0]?.advice).to.contain('oc adm certificate approve csr-1');
  });

  it('sums up many requests by signer and node in one finding, with the command that approves all', () => {
    const requests = Array.from({ length: 300 }, (_, index) => of(serving, `system:node:worker-${index % 3}`));
    const found = checkSigningRequests([...requests, of(client, bootstrapper)]);
    expect(find([...requests, of(client, bootstrapper)])).to.deep.equal([
      `warning  301 requests of kubelets wait for approval (${client}: 1 for ${bootstrapper}; ` +
        `${serving}: 100 for worker-0, 100 for worker-1, 100 for worker-2)`,
    ]);
    expect(found[0]?.advice).to.contain('oc get csr -o name | xargs oc adm certificate approve');
  });

  it('names ten nodes, and the number of the others', () => {
    const requests = Array.from({ length: 250 }, (_, index) => of(client, `system:node:w${index}`));
    expect(find(requests)[0]).to.match(/: 1 for w0, .*, 1 for w9 and 240 more\)$/);
  });

  it('reads the name of a new node from its request', async () => {
    const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify']);
    const made = await Pkcs10CertificateRequestGenerator.create({
      name: 'O=system:nodes, CN=system:node:worker-7.site.example',
      ...{ keys, signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' } },
    });
    const encoded = Buffer.from(made.toString('pem')).toString('base64');
    expect(find([request({ signerName: client, username: bootstrapper, request: encoded })])[0]).to.match(
      / for worker-7\.site\.example$/,
    );
  });
});
