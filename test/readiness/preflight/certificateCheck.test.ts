import 'reflect-metadata';
import { Pkcs10CertificateRequestGenerator } from '@peculiar/x509';
import { expect } from 'chai';
import { formatSubject } from '../../../lib/cluster/finding.ts';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { checkCertificates, checkSigningRequests } from '../../../lib/readiness/preflight/certificateCheck.ts';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import { furnish, pod } from '../../fakes/cluster/site.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const hour = 3_600_000;
const now = Date.parse('2026-11-25T12:00:00Z');
const at = (hours: number): string => new Date(now + hours * hour).toISOString().replace(/\.\d+/, '');

describe('preflight of certificates', () => {
  let connected: StartedCluster;
  const start = async (options: Parameters<typeof startCluster>[0] = {}): Promise<void> => {
    connected = await startCluster({ openshift: '4.19.3', ...options });
    furnish(connected.server);
  };
  afterEach(() => connected.close());

  const put = (name: string, begin: string, end: string, namespace = 'openshift-etcd'): void => {
    const annotations = {
      'auth.openshift.io/certificate-not-before': begin,
      'auth.openshift.io/certificate-not-after': end,
    };
    const metadata = { name, namespace, annotations };
    if (!connected.server.find('v1', 'Namespace', namespace))
      connected.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    connected.server.put({ apiVersion: 'v1', kind: 'Secret', metadata, data: { 'tls.key': 'c2VjcmV0' } });
  };
  const find = async (): Promise<string[]> => {
    const found = await checkCertificates(connected.cluster, await surveyCluster(connected.cluster), now);
    return found.map(({ severity, subject, message }) => `${severity} ${formatSubject(subject)} ${message}`);
  };

  it('blocks a certificate that has expired, and warns of one that is not renewed', async () => {
    await start();
    put('signing-key', at(-24 * 365), at(20), 'openshift-service-ca');
    put('etcd-signer', at(-24 * 365), at(24 * 20));
    put('csr-signer', at(-24 * 30), at(-1), 'openshift-kube-controller-manager-operator');
    expect(await find()).to.have.members([
      `warning secret/signing-key -n openshift-service-ca is not renewed, and expires at ${at(20)}`,
      `warning secret/etcd-signer -n openshift-etcd is not renewed, and expires at ${at(24 * 20)}`,
      `blocker secret/csr-signer -n openshift-kube-controller-manager-operator has expired at ${at(-1)}`,
    ]);
  });

  it('only informs of an expired certificate that no running component loads', async () => {
    await start();
    put('etcd-peer-master-0', at(-24 * 365), at(-1));
    put('etcd-peer-master-9', at(-24 * 365), at(-1));
    put('node-system-admin-client', at(-24 * 365), at(-1), 'openshift-kube-apiserver-operator');
    put('old', at(-24 * 365), at(20), 'openshift-service-ca');
    expect(await find()).to.have.members([
      `blocker secret/etcd-peer-master-0 -n openshift-etcd has expired at ${at(-1)}`,
      `info secret/etcd-peer-master-9 -n openshift-etcd has expired at ${at(-1)}; no running component loads it`,
      `info secret/node-system-admin-client -n openshift-kube-apiserver-operator has expired at ${at(-1)}; no ` +
        'running component loads it',
    ]);
    const volumes = [{ name: 'c', projected: { sources: [{ secret: { name: 'old' } }] } }];
    connected.server.put(pod('service-ca-1', 'openshift-service-ca', { volumes }, 'ReplicaSet/service-ca'));
    expect(await find()).to.include(
      `warning secret/old -n openshift-service-ca is not renewed, and expires at ${at(20)}`,
    );
  });

  it('finds nothing about certificates that their operators still renew, also those of the first day', async () => {
    await start();
    put('aggregator-client', at(-24 * 14), at(24 * 16), 'openshift-kube-apiserver');
    put('first', at(-2), at(22));
    connected.server.put({
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'other', namespace: 'openshift-etcd' },
    });
    connected.server.nodeMetrics.set('worker-0', 'kubelet_certificate_manager_client_ttl_seconds 1.2e+06\n');
    expect(await find()).to.deep.equal([]);
  });

  it('asks kubelets for their certificates', async () => {
    await start();
    const metric = 'kubelet_certificate_manager_client_ttl_seconds';
    connected.server.nodeMetrics.set('worker-0', `# HELP ${metric} x\n# TYPE ${metric} gauge\n${metric} 7200\n`);
    connected.server.nodeMetrics.set('worker-1', `${metric} -5\n`);
    connected.server.nodeMetrics.set('master-0', `${metric} +Inf\n`);
    expect(await find()).to.deep.equal([
      'warning node/worker-0 has a kubelet whose certificate expires in 2 h',
      'blocker node/worker-1 has a kubelet whose certificate has expired',
    ]);
  });

  it('says that Secrets may not be listed, and reads their metadata only', async () => {
    await start({ tokens: new Map([['t', 'reader']]), allow: ({ resource }) => resource !== 'secrets' });
    expect((await find())[0]).to.equal(
      'info secret/ -n openshift-kube-apiserver-operator you may not list secrets -n ' +
        'openshift-kube-apiserver-operator: when its certificates expire is unknown',
    );
    await connected.close();
    await start();
    put('etcd-signer', at(-24), at(24));
    const [secret] = await connected.cluster.listMetadata('v1', 'Secret', 'openshift-etcd');
    expect([secret?.metadata.name, secret?.['data']]).to.deep.equal(['etcd-signer', undefined]);
  });
});

const [client, serving] = ['kubernetes.io/kube-apiserver-client-kubelet', 'kubernetes.io/kubelet-serving'];
const bootstrapper = 'system:serviceaccount:openshift-machine-config-operator:node-bootstrapper';

describe('checkSigningRequests', () => {
  let count = 0;
  const request = (spec: object, type?: string): StoredObject => ({
    apiVersion: 'certificates.k8s.io/v1',
    kind: 'CertificateSigningRequest',
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
      keys,
      signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
    });
    const encoded = Buffer.from(made.toString('pem')).toString('base64');
    expect(find([request({ signerName: client, username: bootstrapper, request: encoded })])[0]).to.match(
      / for worker-7\.site\.example$/,
    );
  });
});
