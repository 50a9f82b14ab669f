import { generateKeyPairSync } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { parse } from 'yaml';
import { checkImagePolicies } from '../../../lib/readiness/preflight/imagePolicyCheck.ts';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import { furnish, platformImage } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import type { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { imagePolicyFiles, type PolicyOptions } from '../../support/release/imagePolicy.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const otherKey = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ type: 'spki', format: 'pem' });
const image = platformImage('b');
const mirror = 'mirror.example:8443/ocp';

/** What a cluster has; by default the policy of the target, and nodes that are set up for it. */
interface Case {
  readonly cluster?: PolicyOptions;
  readonly target?: PolicyOptions;
  readonly namespace?: string;
  readonly mirrors?: boolean;
  readonly attachments?: string;
  /** A text is compressed. */
  readonly policy?: object | string;
  /** Whether the cluster serves the policies as v1alpha1 only. */
  readonly isEarlier?: true;
}

describe('checkImagePolicies', () => {
  let server: TestApiServer;
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.21.3' });
    ({ server } = connected);
    furnish(server);
  });
  afterEach(() => connected.close());

  const find = async (given: Case): Promise<string[]> => {
    const apiVersion = `config.openshift.io/${given.isEarlier ? 'v1alpha1' : 'v1'}`;
    if (given.isEarlier) {
      await connected.close();
      connected = await startCluster({ openshift: '4.18.3' });
      ({ server } = connected);
      furnish(server);
    }
    if ('cluster' in given) {
      const [text = ''] = Object.values(imagePolicyFiles(given.cluster));
      const { metadata, ...policy } = parse(text) as Json & { metadata: Json };
      const { namespace } = given;
      const kind = namespace === undefined ? {} : { kind: 'ImagePolicy' };
      server.put({
        ...policy,
        apiVersion,
        ...kind,
        metadata: { ...metadata, ...(namespace !== undefined && { namespace }) },
      });
    }
    if (given.mirrors === true) {
      const [source] = image.split('@');
      const spec = { imageDigestMirrors: [{ source, mirrors: [mirror] }] };
      server.put({ apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet', metadata: { name: 'm' }, spec });
    }
    const files = [
      typeof given.policy === 'string'
        ? file('/etc/containers/policy.json', given.policy, true)
        : file(
            '/etc/containers/policy.json',
            JSON.stringify(given.policy ?? { default: [{ type: 'insecureAcceptAnything' }] }),
          ),
      ...(given.attachments === undefined
        ? []
        : [file('/etc/containers/registries.d/sigstore-registries.yaml', given.attachments, true)]),
    ];
    const spec = { config: { storage: { files } } };
    server.put({ apiVersion: machines, kind: 'MachineConfig', metadata: { name: 'rendered-worker' }, spec });
    const pool = server.find(machines, 'MachineConfigPool', 'worker') ?? { metadata: { name: 'worker' } };
    server.put({ ...pool, status: { configuration: { name: 'rendered-worker' } } });
    const manifests = new Map(
      Object.entries(imagePolicyFiles(given.target)).map(([name, text]) => [name, Buffer.from(text)]),
    );
    const plan = { path: 'x.tar', version: '4.21.4', images: [image], manifests };
    const { cluster, context } = connected;
    const findings = await checkImagePolicies(cluster, await surveyCluster(cluster), plan, [], context);
    return findings.map(({ severity, subject, message }) => `${severity} ${subject.kind}/${subject.name}: ${message}`);
  };

  const cases: readonly (readonly [title: string, given: Case, expected: RegExp | undefined])[] = [
    ['nothing without policies in the cluster', { mirrors: true }, undefined],
    ['nothing about the policy that the target has too', { cluster: {} }, undefined],
    ['nothing about other images', { cluster: { scopes: ['example.com'], key: otherKey } }, undefined],
    [
      'another key than that of the target',
      { cluster: { key: otherKey } },
      /^warning ClusterImagePolicy\/openshift: has the key SHA256:\w{64}, and the policy of 4\.21\.4 has SHA256:\w{64}$/,
    ],
    [
      'another key in a cluster that serves v1alpha1',
      { cluster: { key: otherKey }, isEarlier: true },
      /^warning ClusterImagePolicy\/openshift: has the key /,
    ],
    [
      'a namespaced policy in a cluster that serves v1alpha1',
      { cluster: {}, target: { scopes: ['example.com'] }, namespace: 'shop', isEarlier: true },
      /^warning ImagePolicy\/openshift: is for its namespace/,
    ],
    [
      'a policy that the target does not know',
      { cluster: { scopes: ['quay.io'] }, target: { scopes: ['example.com'] } },
      /covers images of 4\.21\.4 that no policy of 4\.21\.4 covers/,
    ],
    [
      'a policy of a namespace',
      { cluster: {}, target: { scopes: ['example.com'] }, namespace: 'shop' },
      /^warning ImagePolicy\/openshift: is for its namespace/,
    ],
    [
      'a policy whose images nodes refuse',
      { cluster: { rootOfTrust: { policyType: 'PKI' } } },
      /covers images of 4\.21\.4, which nodes refuse: its CA is missing/,
    ],
    [
      'a mirror where nodes look for no signatures',
      { cluster: {}, mirrors: true },
      /^warning MachineConfigPool\/worker: its nodes do not read sigstore signatures in mirror\.example:8443\/ocp,/,
    ],
    ...[
      'docker:\n  mirror.example:8443:\n    use-sigstore-attachments: true',
      'default-docker: {use-sigstore-attachments: true}',
    ].map((attachments) => ['nothing if they do', { cluster: {}, mirrors: true, attachments }, undefined] as const),
    [
      'a mirror whose setting is off',
      { cluster: {}, mirrors: true, attachments: 'docker: {"mirror.example:8443/ocp": {}}' },
      /do not read sigstore signatures/,
    ],
    [
      'a policy.json that rejects by default',
      { policy: { default: [{ type: 'reject' }] } },
      /^blocker MachineConfigPool\/worker: its \/etc\/containers\/policy\.json rejects images of quay\.io\//,
    ],
    ...['{', ' '.repeat(17 * 2 ** 20)].map((policy) => {
      const title = `a policy.json of ${policy.length} bytes that is not JSON`;
      return [title, { policy }, /^warning .*: has a \/etc\/containers\/policy\.json that cannot be read: /] as const;
    }),
    [
      'nothing if it has an exception for the images',
      {
        policy: {
          default: [{ type: 'reject' }],
          transports: { docker: { 'quay.io': [{ type: 'insecureAcceptAnything' }] } },
        },
      },
      undefined,
    ],
  ];
  for (const [title, given, expected] of cases) {
    it(`reports ${title}`, async () => {
      const found = await find(given);
      if (!expected) expect(found).to.deep.equal([]);
      else {
        expect(found).to.have.length(1);
        expect(found[0]).to.match(expected);
      }
    });
  }
});

function file(path: string, text: string, isCompressed = false): Json {
  const contents = isCompressed
    ? { source: `data:;base64,${gzipSync(text).toString('base64')}`, compression: 'gzip' }
    : { source: `data:text/plain,${encodeURIComponent(text)}` };
  return { path, contents };
}
