import { expect } from 'chai';
import { applyObjects } from '../../lib/cluster/apply/serverSideApply.ts';
import type { Cluster } from '../../lib/cluster/client.ts';
import { referenceOf, type ObjectReference } from '../../lib/cluster/objects/discovery.ts';
import type { KubernetesObject } from '../../lib/config/manifest.ts';
import { signatureConfigMap } from '../../lib/config/signatures.ts';
import { awaitDone } from '../../lib/context.ts';
import { ignoring, isPluginError, messageOf, PluginError } from '../../lib/errors.ts';
import { fieldsAt, fieldsOf, listOf } from '../../lib/fields.ts';
import { agentObjects } from '../../lib/update/install/agentObjects.ts';
import { mirrorAccess } from '../../lib/update/mirror/mirrorObjects.ts';
import type { Account } from '../../lib/update/record/accountAccess.ts';
import { formatNodeReport } from '../../lib/update/record/nodeReport.ts';
import { proposalAnnotation, reportNamespace, upgradeBundleKind } from '../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../lib/update/record/upgradeBundleDefinition.ts';
import { platformImage } from '../fakes/cluster/site.ts';
import { makeContext } from '../support/context.ts';
import { skipLoudly } from '../support/loopDevice.ts';
import { isInUse } from './contractUpdate.ts';

/** A server, and connections to it until it is closed. */
export interface AccountSite {
  /** Connects as the administrator, or as one of our accounts. Its token may name a node. */
  connect(account?: Account, node?: string): Promise<Cluster>;
  close(): Promise<void>;
}

type Write = (cluster: Cluster) => Promise<unknown>;

const home = 'oc-upgrade-bundle';
const [config, managed, daemons] = [
  'openshift-config',
  'openshift-config-managed',
  'openshift-machine-config-operator',
];
const image = `quay.io/openshift-release-dev/ocp-release@sha256:${'2'.repeat(64)}`;
const digest = `sha256:${'d'.repeat(64)}`;
const dry = { dryRun: true } as const;
const status = { ...dry, subresource: 'status' } as const;

const referTo = (apiVersion: string, kind: string, name: string, namespace?: string): ObjectReference => ({
  apiVersion,
  kind,
  metadata: { name, ...(namespace !== undefined && { namespace }) },
});
const versionObject = referTo('config.openshift.io/v1', 'ClusterVersion', 'version');
const machines = 'machineconfiguration.openshift.io/v1';
const pool = referTo(machines, 'MachineConfigPool', 'tried');
const authority = referTo(machines, 'MachineConfig', `98-tried-${home}-mirror`);
const streams = referTo(machines, 'OSImageStream', 'cluster');
const acks = referTo('v1', 'ConfigMap', 'admin-acks', config);
const trusted = referTo('v1', 'ConfigMap', 'tried-ca', config);
const agents = referTo('apps/v1', 'DaemonSet', 'agent', home);
const lead = referTo('coordination.k8s.io/v1', 'Lease', 'controller', home);

const file = (host: string, more: object = {}): object => ({
  path: `/etc/containers/certs.d/${host}/ca.crt`,
  mode: 420,
  overwrite: true,
  contents: { source: 'data:,CA' },
  ...more,
});
const withFiles = (...files: object[]) => ({ spec: { config: { storage: { files } } } });
const record = (name: string, spec: object, annotations?: Record<string, string>): KubernetesObject => ({
  ...upgradeBundleKind,
  metadata: { name, ...(annotations && { annotations }) },
  spec,
});
const report = (node: string): KubernetesObject =>
  formatNodeReport({
    bundle: '',
    progress: { name: node, phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 },
  });

/** The objects that the accounts try to change. */
const subjects: readonly KubernetesObject[] = [
  {
    ...versionObject,
    spec: { clusterID: '6b8a0a7c-0000-4000-8000-000000000000', channel: 'stable-5.0' },
  },
  {
    ...pool,
    metadata: { ...pool.metadata, labels: { a: 'b' }, annotations: { own: 'x' } },
    spec: { paused: false, maxUnavailable: 1, nodeSelector: { matchLabels: { tried: '' } } },
  },
  {
    ...authority,
    metadata: { ...authority.metadata, labels: { 'machineconfiguration.openshift.io/role': 'tried' } },
    spec: { config: { ignition: { version: '3.2.0' }, storage: { files: [file('localhost:9690')] } } },
  },
  { ...streams, spec: { defaultStream: 'rhel-9' } },
  { ...acks, data: { 'ack-4.18-x': 'true', own: 'text' } },
  { ...trusted, data: { 'localhost..9690': 'CA', 'r.example.com': 'theirs' } },
  { ...referTo('v1', 'ConfigMap', 'tried', managed), data: { a: 'b' } },
  { ...referTo('v1', 'ConfigMap', 'tried', config), data: { a: 'b' } },
  record('found', { bundle: {} }, { [proposalAnnotation]: 'a' }),
  record('made', { bundle: {} }),
  report('a'),
  report('b'),
  // A pod needs the account.
  { ...referTo('v1', 'ServiceAccount', 'default', 'default') },
];

const { object: signature } = signatureConfigMap(`sha256:${'2'.repeat(64)}`, [Buffer.from('x')], {
  version: '5.0.1',
  signer: 'A',
});
const override = { group: 'apps', kind: 'Deployment', namespace: 'x', name: 'x', unmanaged: true };
const update = (desiredUpdate: object | null, more: object = {}): Write => {
  return (cluster) => cluster.patch(versionObject, { spec: { ...more, desiredUpdate } }, dry);
};
const patch = (reference: ObjectReference, change: Record<string, unknown>): Write => {
  return (cluster) => cluster.patch(reference, change, dry);
};
const createLike = (metadata: object, more: object = {}): Write => {
  return (cluster) => cluster.create({ ...signature, ...more, metadata: { ...signature.metadata, ...metadata } }, dry);
};
/** Changes the container of the agents, and keeps its other fields. */
const changeAgents = (change: object): Write => {
  return async (cluster) => {
    const { containers: before } = fieldsAt(await cluster.read(agents), 'spec', 'template', 'spec');
    const [container] = listOf(before);
    const containers = [{ ...container, ...change }];
    return await cluster.patch(agents, { spec: { template: { spec: { containers } } } }, dry);
  };
};

/**
 * A write that an account tries. It is `allowed`, its `role` has no right to it, or the policy of this name refuses it.
 * The token of the account may name a node.
 */
type Case = readonly [what: string, decision: string, write: Write, node?: string];

/** The writes of the controller, by their subject. */
const controllerWrites: Readonly<Record<string, Case[]>> = {
  ClusterVersion: [
    ['an image by digest', 'allowed', update({ image, version: '5.0.1', force: false })],
    ['force', 'clusterversion', update({ image, force: true })],
    ['a tag', 'clusterversion', update({ image: 'quay.io/x:latest' })],
    ['no image', 'clusterversion', update({ version: '5.0.1' })],
    ['no update', 'clusterversion', update(null)],
    ['the channel', 'clusterversion', update({ image }, { channel: 'other' })],
    ['no channel', 'clusterversion', update({ image }, { channel: null })],
    ['its operators', 'clusterversion', update({ image }, { overrides: [override] })],
    [
      'a label',
      'clusterversion',
      patch(versionObject, { metadata: { labels: { a: 'b' } }, spec: { desiredUpdate: { image } } }),
    ],
    ['its status', 'role', (cluster) => cluster.patch(versionObject, { status: {} }, status)],
    ['its end', 'role', (cluster) => cluster.delete(versionObject, dry)],
  ],
  pools: [
    ['a pause', 'allowed', patch(pool, { spec: { paused: true } })],
    [
      'a pause with its note',
      'allowed',
      patch(pool, { metadata: { annotations: { 'upgrade-bundle.openshift.io/before': 'x' } }, spec: { paused: true } }),
    ],
    ['the number of nodes', 'pools', patch(pool, { spec: { maxUnavailable: '100%' } })],
    ['no number of nodes', 'pools', patch(pool, { spec: { maxUnavailable: null } })],
    ['other nodes', 'pools', patch(pool, { spec: { nodeSelector: { matchLabels: { tried: null } } } })],
    ['a configuration', 'pools', patch(pool, { spec: { configuration: { name: 'rendered-tried-2' } } })],
    ['labels', 'pools', patch(pool, { metadata: { labels: { c: 'd' } } })],
    ['an annotation of others', 'pools', patch(pool, { metadata: { annotations: { own: null } } })],
    ['its end', 'role', (cluster) => cluster.delete(pool, dry)],
  ],
  'the CA of mirrors': [
    ['a host', 'allowed', patch(authority, withFiles(file('localhost:9690'), file('192.0.2.11:9690')))],
    [
      'another CA',
      'mirror-files',
      patch(authority, withFiles(file('localhost:9690'), file('192.0.2.11:9690', { contents: { source: 'data:,X' } }))),
    ],
    [
      'another path',
      'mirror-files',
      patch(authority, withFiles(file('localhost:9690'), { ...file('192.0.2.11:9690'), path: '/etc/shadow' })),
    ],
    [
      'another mode',
      'mirror-files',
      patch(authority, withFiles(file('localhost:9690'), file('192.0.2.11:9690', { mode: 0o4755 }))),
    ],
    ['one file less', 'mirror-files', patch(authority, withFiles(file('192.0.2.11:9690')))],
    ['units', 'mirror-files', patch(authority, { spec: { config: { systemd: { units: [{ name: 'a.service' }] } } } })],
    ['kernel arguments', 'mirror-files', patch(authority, { spec: { kernelArguments: ['a'] } })],
    ['an operating system', 'mirror-files', patch(authority, { spec: { osImageURL: 'quay.io/x' } })],
    ['another MachineConfig', 'role', patch(referTo(machines, 'MachineConfig', '00-tried'), { spec: {} })],
    ['a host in the ConfigMap', 'allowed', patch(trusted, { data: { '192.0.2.11..9690': 'CA' } })],
    ['another CA in it', 'acknowledgements', patch(trusted, { data: { '192.0.2.11..9690': 'X' } })],
    ['a host that is none', 'acknowledgements', patch(trusted, { data: { 'quay.io': 'CA' } })],
    ['the host of the site', 'acknowledgements', patch(trusted, { data: { 'r.example.com': null } })],
  ],
  'operating system streams': [
    [
      'the release',
      'allowed',
      patch(streams, {
        metadata: { annotations: { 'machineconfiguration.openshift.io/release-image-version': '5.0.1' } },
      }),
    ],
    ['the default', 'streams', patch(streams, { spec: { defaultStream: 'rhel-10' } })],
    ['labels', 'streams', patch(streams, { metadata: { labels: { a: 'b' } } })],
    ['other annotations', 'streams', patch(streams, { metadata: { annotations: { a: 'b' } } })],
    [
      'images',
      'allowed',
      (cluster) => {
        const available = { name: 'rhel-9', osImage: platformImage('a'), osExtensionsImage: platformImage('b') };
        return cluster.patch(streams, { status: { defaultStream: 'rhel-9', availableStreams: [available] } }, status);
      },
    ],
    ['its end', 'role', (cluster) => cluster.delete(streams, dry)],
  ],
  signatures: [
    ['a new one', 'allowed', (cluster) => cluster.apply(signature, dry)],
    ['one without a label', 'signatures', createLike({ labels: {} })],
    ['one of another name', 'signatures', createLike({ name: 'release-verification' })],
    ['one with other data', 'signatures', createLike({}, { data: { 'ca.crt': 'x' } })],
    ['other binary data', 'signatures', createLike({}, { binaryData: { other: 'eA==' } })],
    ['another ConfigMap', 'signatures', patch(referTo('v1', 'ConfigMap', 'tried', managed), { data: { a: 'c' } })],
    ['one in another namespace', 'role', createLike({ namespace: config })],
    ['the end of a ConfigMap', 'role', (cluster) => cluster.delete(referTo('v1', 'ConfigMap', 'tried', managed), dry)],
  ],
  acknowledgements: [
    ['one more', 'allowed', patch(acks, { data: { 'ack-4.19-y': 'true' } })],
    ['another value', 'acknowledgements', patch(acks, { data: { 'ack-4.19-y': 'false' } })],
    ['another key', 'acknowledgements', patch(acks, { data: { 'ca-bundle.crt': 'true' } })],
    ['a change of another key', 'acknowledgements', patch(acks, { data: { own: 'true' } })],
    ['one less', 'acknowledgements', patch(acks, { data: { 'ack-4.18-x': null } })],
    ['annotations', 'acknowledgements', patch(acks, { metadata: { annotations: { a: 'c' } } })],
    ['binary data', 'acknowledgements', patch(acks, { binaryData: { 'ack-4.19-y': 'eA==' } })],
    ['another ConfigMap', 'role', patch(referTo('v1', 'ConfigMap', 'tried', config), { data: { a: 'c' } })],
  ],
  agents: [
    ['their image', 'allowed', changeAgents({ image: platformImage('c') })],
    ['their image by tag', 'agents', changeAgents({ image: 'quay.io/x:latest' })],
    ['their command', 'agents', changeAgents({ command: ['/bin/sh'] })],
    ['their account', 'agents', patch(agents, { spec: { template: { spec: { serviceAccountName: 'default' } } } })],
    ['another container', 'agents', changeAgents({ name: 'other' })],
    ['their labels', 'agents', patch(agents, { metadata: { labels: { a: 'b' } } })],
    ['their end', 'role', (cluster) => cluster.delete(agents, dry)],
  ],
  Leases: [
    ['its own', 'allowed', async (cluster) => cluster.update({ ...lead, ...(await cluster.read(lead)) }, dry)],
    [
      'another one here',
      'lease',
      (cluster) => cluster.create({ ...lead, metadata: { name: 'other', namespace: home }, spec: {} }, dry),
    ],
    ['the end of its own', 'role', (cluster) => cluster.delete(lead, dry)],
    ['the end of a report', 'allowed', (cluster) => cluster.delete(report('a'), dry)],
    ['a report', 'role', (cluster) => cluster.create(report('c'), dry)],
  ],
  UpgradeBundles: [
    ['a new one', 'allowed', (cluster) => cluster.create(record('new', { bundle: {} }), dry)],
    ['a new one with a digest', 'records', (cluster) => cluster.create(record('new', { bundle: { digest } }), dry)],
    [
      'a new one with extra images',
      'records',
      (cluster) => cluster.create(record('new', { bundle: {}, allowExtraImages: [digest] }), dry),
    ],
    ['the end of one that it made', 'allowed', (cluster) => cluster.delete(record('found', {}), dry)],
    ['the end of one of a person', 'records', (cluster) => cluster.delete(record('made', {}), dry)],
    ['its digest', 'role', patch(record('made', {}), { spec: { bundle: { digest } } })],
    [
      'its status',
      'allowed',
      (cluster) => cluster.patch(record('made', {}), { status: { phase: 'Detected' } }, status),
    ],
  ],
};

/** The writes of the agent of node a, and of one whose token names no node. */
const agentWrites: Case[] = [
  ['its report', 'allowed', (cluster) => cluster.apply(report('a'), { ...dry, force: true }), 'a'],
  ['a first report', 'allowed', (cluster) => cluster.apply(report('new'), dry), 'new'],
  ['the report of another node', 'reports', (cluster) => cluster.apply(report('b'), { ...dry, force: true }), 'a'],
  [
    'a report that names another node',
    'reports',
    (cluster) => cluster.patch(report('a'), { spec: { holderIdentity: 'b' } }, dry),
    'a',
  ],
  ['a report, if its token names no node', 'allowed', (cluster) => cluster.apply(report('b'), { ...dry, force: true })],
  [
    'another Lease, if its token names no node',
    'reports',
    (cluster) => cluster.create({ ...lead, metadata: { name: 'x', namespace: reportNamespace }, spec: {} }, dry),
  ],
  ['the Lease of the controller', 'role', (cluster) => cluster.patch(lead, { spec: {} }, dry), 'a'],
  ['the end of a report', 'role', (cluster) => cluster.delete(report('a'), dry), 'a'],
  ['an UpgradeBundle', 'role', (cluster) => cluster.create(record('new', { bundle: {} }), dry), 'a'],
  ['an update', 'role', update({ image }), 'a'],
];

/** A pod spec whose container pulls at every start, or not. */
const podSpec = (imagePullPolicy: string): object => ({
  containers: [{ name: 'main', image: platformImage('a'), imagePullPolicy }],
});
const workload = (
  apiVersion: string,
  kind: string,
  imagePullPolicy: string,
  namespace = 'default',
): KubernetesObject => {
  const isJob = kind === 'Job' || kind === 'CronJob';
  const labels = { app: 'tried' };
  const pod = { ...podSpec(imagePullPolicy), ...(isJob && { restartPolicy: 'Never' }) };
  const selector = kind === 'ReplicationController' ? labels : { matchLabels: labels };
  const spec = { ...(!isJob && { selector }), template: { metadata: { labels }, spec: pod } };
  return {
    apiVersion,
    kind,
    metadata: { name: 'tried', namespace },
    spec: kind === 'Pod' ? pod : kind === 'CronJob' ? { schedule: '0 0 * * *', jobTemplate: { spec } } : spec,
  };
};
const workloads = [
  ['v1', 'Pod'],
  ['v1', 'ReplicationController'],
  ...['Deployment', 'DaemonSet', 'StatefulSet', 'ReplicaSet'].map((kind) => ['apps/v1', kind] as const),
  ['batch/v1', 'Job'],
  ['batch/v1', 'CronJob'],
] as const;
const create = (object: KubernetesObject): Write => {
  return (cluster) => cluster.create(object, dry);
};
const withOwner = ({ metadata, ...content }: KubernetesObject): KubernetesObject => {
  const owner = { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'x', uid: 'x', controller: true };
  return { ...content, metadata: { ...metadata, ownerReferences: [owner] } } as KubernetesObject;
};

/** The workloads of a person. */
const workloadWrites: readonly Case[] = [
  ...workloads.flatMap(([apiVersion, kind]): Case[] => [
    [`a ${kind} that always pulls`, 'pull-policy', create(workload(apiVersion, kind, 'Always'))],
    [`a ${kind} that does not`, 'allowed', create(workload(apiVersion, kind, 'IfNotPresent'))],
  ]),
  ['a Deployment of the platform', 'allowed', create(workload('apps/v1', 'Deployment', 'Always', config))],
  ['a Pod of a controller', 'allowed', create(withOwner(workload('v1', 'Pod', 'Always')))],
];

const all: readonly (readonly [Account | undefined, Case])[] = [
  ...workloadWrites.map((each) => [undefined, each] as const),
  ...Object.values(controllerWrites).flatMap((cases) => cases.map((each) => ['controller', each] as const)),
  ...agentWrites.map((each) => ['agent', each] as const),
];

/**
 * Tests of roles and policies with any API server, a real one or the one in this process: what our accounts may write,
 * and which workloads a person may create. Every tried write is a dry run. Skips a cluster that has nodes or our kind,
 * and kinds that the server does not have.
 */
export function describeAccounts(title: string, start: () => Promise<AccountSite>): void {
  describe(title, function () {
    const connected = new Map<string, Cluster>();
    const made: ObjectReference[] = [];
    let site: AccountSite;
    let admin: Cluster;

    const connect = async (account?: Account, node?: string): Promise<Cluster> => {
      const key = `${account ?? ''} ${node ?? ''}`;
      const cluster = connected.get(key) ?? (await site.connect(account, node));
      connected.set(key, cluster);
      return cluster;
    };
    const until = (holds: () => Promise<boolean>, otherwise: string): Promise<void> => {
      const look = async () => ((await holds()) ? undefined : new PluginError('not-ready', otherwise));
      return awaitDone(look, { timeout: 60_000, interval: 50 }, makeContext());
    };
    const ensure = async (object: KubernetesObject): Promise<void> => {
      if (!(await admin.findKind(object.apiVersion, object.kind))) return;
      const created = await admin.create(object).catch(ignoring('conflict'));
      if (created && object.kind !== 'Namespace') made.push(referenceOf(object));
    };
    const isEstablished = async (): Promise<boolean> => {
      const definition = await admin.read(referenceOf(upgradeBundleDefinition()));
      const conditions = listOf(fieldsOf(definition?.['status'])['conditions']);
      return conditions.some((each) => each['type'] === 'Established' && each['status'] === 'True');
    };
    /** Tries a write, and returns what decided about it. */
    const decide = async (account: Account | undefined, [, , write, node]: Case): Promise<string> => {
      try {
        await write(await connect(account, node));
        return 'allowed';
      } catch (error) {
        if (isPluginError(error, 'not-served')) return 'not served';
        const [, policy] = /ValidatingAdmissionPolicy '([^']+)' with binding/.exec(messageOf(error)) ?? [];
        if (policy !== undefined && isPluginError(error, policy.endsWith('-pull-policy') ? 'invalid-object' : 'denied'))
          return policy.replace(`${home}-`, '');
        if (!isPluginError(error, 'denied')) throw error;
        return 'role';
      }
    };
    const test = (account: Account | undefined, each: Case): void => {
      const [what, wanted] = each;
      it(`${what}: ${wanted}`, async function () {
        const decision = await decide(account, each);
        if (decision === 'not served') skipLoudly(this, 'the server does not have this kind');
        expect(decision).to.equal(wanted);
      });
    };

    before(async function () {
      site = await start();
      admin = await connect();
      if (await isInUse(admin)) skipLoudly(this, 'this is somebody’s cluster');
      for (const name of [config, managed, daemons]) await ensure({ ...referTo('v1', 'Namespace', name) });
      const objects = [
        ...agentObjects({ image: platformImage('d'), executables: {}, admission: 'deny', rules: true }),
        ...mirrorAccess({ roles: ['tried'], trustedAuthorities: trusted.metadata.name, hasPolicies: true }),
      ];
      made.push(...objects.filter((object) => object.kind !== 'Namespace').map(referenceOf));
      await applyObjects(admin, objects, { overwrite: false }, makeContext());
      const { apiVersion, kind } = upgradeBundleKind;
      const list = () => admin.list(apiVersion, kind).then(Boolean, () => false);
      await until(async () => (await isEstablished()) && (await list()), 'the kind is not served');
      for (const object of subjects) await ensure(object);
      // A policy takes effect some moments after its creation.
      const policies = new Set(all.map(([, [, decision]]) => decision).filter((each) => each !== 'role'));
      for (const policy of policies) {
        const [account, each] = all.find(([, [, decision]]) => decision === policy) ?? [];
        if (each && policy !== 'allowed')
          await until(async () => (await decide(account, each)) !== 'allowed', `${policy} refuses nothing`);
      }
    });
    after(async () => {
      for (const reference of made.toReversed()) await admin.delete(reference);
      await site.close();
    });

    for (const [subject, cases] of Object.entries(controllerWrites))
      describe(`the controller writes ${subject}`, () => {
        for (const each of cases) test('controller', each);
      });
    describe('a person writes', () => {
      for (const each of workloadWrites) test(undefined, each);
    });
    describe('an agent writes', () => {
      for (const each of agentWrites) test('agent', each);
    });
  });
}
