import { expect } from 'chai';
import { signatureConfigMap } from '../../../lib/config/signatures.ts';
import { accountPolicies } from '../../../lib/update/install/accountPolicies.ts';
import { agentObjects } from '../../../lib/update/install/agentObjects.ts';
import { userOf } from '../../../lib/update/record/accountAccess.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { mergePatch, type Json } from '../../fakes/kubernetes/apiPatch.ts';
import { listMessages, type AdmissionRequest } from '../../fakes/kubernetes/apiPolicy.ts';

const claim = 'authentication.kubernetes.io/node-name';
const image = `quay.io/openshift-release-dev/ocp-release@sha256:${'2'.repeat(64)}`;

describe('accountPolicies', () => {
  /** Returns the messages of all policies about a write. */
  const review = (request: AdmissionRequest): string[] =>
    accountPolicies()
      .filter(({ kind }) => kind === 'ValidatingAdmissionPolicy')
      .flatMap((policy) => listMessages(policy, request));
  const asController = { username: userOf('controller') };
  const asAgent = (node?: string) => ({
    username: userOf('agent'),
    ...(node !== undefined && { extra: { [claim]: [node] } }),
  });

  it('have bindings, concern our accounts only, and deny if they fail', () => {
    const objects = accountPolicies();
    const policies = objects.filter(({ kind }) => kind === 'ValidatingAdmissionPolicy');
    const bindings = objects.filter(({ kind }) => kind === 'ValidatingAdmissionPolicyBinding');
    expect(policies.map(({ metadata }) => metadata.name)).to.deep.equal(
      bindings.map(({ spec }) => (spec as Json)['policyName']),
    );
    for (const { spec } of bindings) expect((spec as Json)['validationActions']).to.deep.equal(['Deny']);
    for (const { spec } of policies) expect(spec).to.include({ failurePolicy: 'Fail' });
    const object = {
      metadata: { name: 'x', namespace: 'oc-upgrade-bundle' },
      spec: { desiredUpdate: { force: true } },
    };
    for (const [group, resource] of [
      ['', 'configmaps'],
      ['coordination.k8s.io', 'leases'],
      ['config.openshift.io', 'clusterversions'],
    ] as const)
      expect(review({ group, resource, object, oldObject: object, user: { username: 'system:admin' } })).to.deep.equal(
        [],
      );
  });

  describe('let the controller change of ClusterVersion', () => {
    const before: Json = {
      metadata: { name: 'version', labels: { a: 'b' } },
      spec: {
        clusterID: 'x',
        channel: 'stable-4.19',
        desiredUpdate: { image: 'old', acceptRisks: [{ name: 'R' }], architecture: '' },
      },
    };
    const change = (patch: Json): string[] => {
      const object = mergePatch(before, patch) as Json;
      return review({
        group: 'config.openshift.io',
        resource: 'clusterversions',
        object,
        oldObject: before,
        user: asController,
      });
    };

    it('image and version of desiredUpdate, without force', () => {
      const desiredUpdate = { image, version: '4.19.4', force: false, architecture: null };
      expect(change({ spec: { desiredUpdate } })).to.deep.equal([]);
    });

    it('more accepted risks', () => {
      const acceptRisks = [{ name: 'R' }, { name: 'S' }];
      expect(change({ spec: { desiredUpdate: { image, acceptRisks } } })).to.deep.equal([]);
    });

    const others: [string, Json, string][] = [
      ['force', { spec: { desiredUpdate: { image, force: true } } }, 'may not force an update'],
      [
        'fewer accepted risks',
        { spec: { desiredUpdate: { image, acceptRisks: [] } } },
        'may set image and version of desiredUpdate, accept more risks, and nothing else',
      ],
      [
        'no accepted risks',
        { spec: { desiredUpdate: { image, acceptRisks: null } } },
        'may set image and version of desiredUpdate, accept more risks, and nothing else',
      ],
      [
        'an architecture',
        { spec: { desiredUpdate: { image, architecture: 'Multi' } } },
        'may set image and version of desiredUpdate, accept more risks, and nothing else',
      ],
      [
        'a tag',
        { spec: { desiredUpdate: { image: 'quay.io/x:latest' } } },
        'may request a release image by digest only',
      ],
      ['no image', { spec: { desiredUpdate: { image: null } } }, 'may request a release image by digest only'],
      ['nothing', { spec: { desiredUpdate: null } }, 'may request a release image by digest only'],
      [
        'a channel',
        { spec: { channel: 'other', desiredUpdate: { image } } },
        'may change only desiredUpdate in the spec',
      ],
      [
        'no channel',
        { spec: { channel: null, desiredUpdate: { image } } },
        'may change only desiredUpdate in the spec',
      ],
      [
        'overrides',
        { spec: { overrides: [{}], desiredUpdate: { image } } },
        'may change only desiredUpdate in the spec',
      ],
      [
        'a signature store',
        { spec: { signatureStores: [{ url: 'https://x' }], desiredUpdate: { image } } },
        'may change only desiredUpdate in the spec',
      ],
      [
        'a label',
        { metadata: { labels: { c: 'd' } }, spec: { desiredUpdate: { image } } },
        'may not change the metadata',
      ],
      [
        'a finalizer',
        { metadata: { finalizers: ['x'] }, spec: { desiredUpdate: { image } } },
        'may not change the metadata',
      ],
    ];
    for (const [what, patch, refusal] of others) {
      it(`not ${what}`, () => {
        expect(change(patch)).to.include(refusal);
      });
    }
  });

  describe('let ConfigMaps of release signatures be written', () => {
    const { object: made } = signatureConfigMap(`sha256:${'2'.repeat(64)}`, [Buffer.from('x')], {
      version: '4.19.4',
      signer: 'A',
    });
    const write = (patch: Json): string[] =>
      review({ group: '', resource: 'configmaps', object: mergePatch(made, patch) as Json, user: asController });

    it('as we make them', () => {
      expect(write({})).to.deep.equal([]);
      expect(
        review({ group: '', resource: 'configmaps', object: { ...made }, oldObject: { ...made }, user: asController }),
      ).to.deep.equal([]);
    });

    const others: [string, Json][] = [
      ['another name', { metadata: { name: 'release-verification' } }],
      ['another namespace', { metadata: { namespace: 'openshift-config' } }],
      ['no label', { metadata: { labels: null } }],
      ['another label', { metadata: { labels: { 'release.openshift.io/verification-signatures': null, a: '' } } }],
      ['data', { data: { 'ca.crt': 'x' } }],
      ['no binaryData', { binaryData: null }],
      ['other binaryData', { binaryData: { other: 'eA==' } }],
    ];
    for (const [what, patch] of others) {
      it(`but not with ${what}`, () => {
        expect(write(patch)).not.to.deep.equal([]);
      });
    }
  });

  describe('let the controller change of objects that replace or add nodes', () => {
    const reviewPatch = (group: string, resource: string, before: Json, patch: Json): string[] =>
      review({ group, resource, object: mergePatch(before, patch) as Json, oldObject: before, user: asController });
    const notes = { 'upgrade-bundle.openshift.io/paused-for': 'x', 'upgrade-bundle.openshift.io/before': '{}' };

    it('the pause of a MachineHealthCheck, and nothing else', () => {
      const check: Json = { metadata: { name: 'a', annotations: { own: 'x' } }, spec: { maxUnhealthy: '40%' } };
      const change = (patch: Json): string[] =>
        reviewPatch('machine.openshift.io', 'machinehealthchecks', check, patch);
      const paused = { ...notes, 'cluster.x-k8s.io/paused': 'true' };
      expect(change({ metadata: { annotations: paused } })).to.deep.equal([]);
      for (const patch of [
        { spec: { maxUnhealthy: '100%' } },
        { spec: { nodeStartupTimeout: '1s' } },
        { metadata: { annotations: { own: 'y' } } },
        { metadata: { annotations: { 'other.io/paused': 'true' } } },
        { metadata: { labels: { a: 'b' } } },
        { metadata: { finalizers: ['x/y'] } },
      ])
        expect(change(patch), JSON.stringify(patch)).to.have.length(1);
    });

    it('the number of nodes that a ClusterAutoscaler keeps, and nothing else', () => {
      const bare: Json = { metadata: { name: 'default' }, spec: {} };
      const full: Json = {
        metadata: { name: 'default' },
        spec: {
          podPriorityThreshold: -10,
          resourceLimits: { maxNodesTotal: 24, cores: { min: 8, max: 128 } },
          scaleDown: { enabled: true, delayAfterAdd: '10m' },
        },
      };
      const pause = { resourceLimits: { maxNodesTotal: 3 }, scaleDown: { enabled: false } };
      const change = (patch: Json, before = full): string[] =>
        reviewPatch('autoscaling.openshift.io', 'clusterautoscalers', before, patch);
      for (const before of [bare, full])
        expect(change({ metadata: { annotations: notes }, spec: pause }, before)).to.deep.equal([]);
      const paused = mergePatch(bare, { metadata: { annotations: notes }, spec: pause }) as Json;
      expect(
        change({ metadata: { annotations: null }, spec: { resourceLimits: null, scaleDown: null } }, paused),
      ).to.deep.equal([]);
      for (const patch of [
        { spec: { podPriorityThreshold: 0 } },
        { spec: { resourceLimits: { cores: { max: 8 } } } },
        { spec: { resourceLimits: { cores: null } } },
        { spec: { scaleDown: { delayAfterAdd: '1s' } } },
        { spec: { balanceSimilarNodeGroups: true } },
        { metadata: { annotations: { own: 'y' } } },
        { metadata: { labels: { a: 'b' } } },
      ])
        expect(change(patch), JSON.stringify(patch)).to.have.length(1);
    });
  });

  describe('let the controller change of a MachineConfigPool', () => {
    const pool: Json = {
      metadata: { name: 'worker', labels: { a: 'b' }, annotations: { own: 'x' } },
      spec: {
        maxUnavailable: 1,
        paused: false,
        nodeSelector: { matchLabels: { worker: '' } },
        configuration: { name: 'rendered-worker-1' },
      },
    };
    const change = (patch: Json, before: Json = pool, user: Json = asController): string[] =>
      review({
        group: 'machineconfiguration.openshift.io',
        resource: 'machineconfigpools',
        object: mergePatch(before, patch) as Json,
        oldObject: before,
        user: user as typeof asController,
      });
    const notes = {
      'upgrade-bundle.openshift.io/paused-for': '4.20.4-x86-64',
      'upgrade-bundle.openshift.io/before': '{"spec":{"paused":false}}',
    };
    const noted: Json = mergePatch(pool, { metadata: { annotations: notes }, spec: { paused: true } }) as Json;

    it('its pause, with the notes about it, and back', () => {
      expect(change({ metadata: { annotations: notes }, spec: { paused: true } })).to.deep.equal([]);
      const none = Object.fromEntries(Object.keys(notes).map((key) => [key, null]));
      for (const paused of [false, null])
        expect(change({ metadata: { annotations: none }, spec: { paused } }, noted)).to.deep.equal([]);
      const bare: Json = { metadata: { name: 'worker' }, spec: {} };
      expect(change({ metadata: { annotations: notes }, spec: { paused: true } }, bare)).to.deep.equal([]);
    });

    const [spec, metadata] = ['may only pause and resume a pool', 'may change only its own annotations of a pool'];
    const others: [string, Json, string][] = [
      ['maxUnavailable', { spec: { maxUnavailable: '100%' } }, spec],
      ['no maxUnavailable', { spec: { maxUnavailable: null } }, spec],
      ['the node selector', { spec: { nodeSelector: { matchLabels: { worker: null, infra: '' } } } }, spec],
      ['the configuration', { spec: { configuration: { name: 'rendered-worker-2' } } }, spec],
      ['a new selector', { spec: { machineConfigSelector: {} } }, spec],
      ['labels', { metadata: { labels: { c: 'd' } } }, metadata],
      ['finalizers', { metadata: { finalizers: ['x/y'] } }, metadata],
      ['an annotation of others', { metadata: { annotations: { own: 'y' } } }, metadata],
      ['a new annotation of others', { metadata: { annotations: { other: 'y' } } }, metadata],
      ['an annotation of others to remove', { metadata: { annotations: { own: null } } }, metadata],
    ];
    for (const [what, patch, refusal] of others) {
      it(`not ${what}`, () => {
        expect(change(patch)).to.deep.equal([refusal]);
        expect(change(patch, pool, { username: 'system:admin' })).to.deep.equal([]);
      });
    }
  });

  describe('let acknowledgements be given', () => {
    const before: Json = {
      metadata: { name: 'admin-acks', namespace: 'openshift-config', annotations: { a: 'b' } },
      data: { 'ack-4.18-x': 'true', own: 'text' },
    };
    const write = (patch: Json, oldObject: Json | null = before): string[] =>
      review({
        group: '',
        resource: 'configmaps',
        object: mergePatch(before, patch) as Json,
        oldObject,
        user: asController,
      });

    it('beside the others', () => {
      expect(write({ data: { 'ack-4.19-y': 'true' } })).to.deep.equal([]);
      const empty = { metadata: before['metadata'] ?? {} };
      const object = { ...empty, data: { 'ack-4.19-y': 'true' } };
      expect(review({ group: '', resource: 'configmaps', object, oldObject: empty, user: asController })).to.deep.equal(
        [],
      );
    });

    const [onlyAcks, onlyAdd] = [
      'may change only the ConfigMap admin-acks and that with the CA of the mirrors here',
      'may add acknowledgements and hosts of the CA, and change nothing else',
    ];
    const others: [string, Json, string][] = [
      ['another ConfigMap', { metadata: { name: 'cloud-provider-config' } }, onlyAcks],
      ['another value', { data: { 'ack-4.19-y': 'false' } }, onlyAdd],
      ['another key', { data: { 'ca-bundle.crt': 'true' } }, onlyAdd],
      ['a change of another key', { data: { own: 'true' } }, onlyAdd],
      ['an acknowledgement that is taken back', { data: { 'ack-4.18-x': null } }, onlyAdd],
      ['annotations', { metadata: { annotations: { a: 'c' } } }, 'may not change the metadata'],
      ['binaryData', { binaryData: { 'ack-4.19-y': 'eA==' } }, 'may not change the metadata'],
    ];
    for (const [what, patch, refusal] of others) {
      it(`but not ${what}`, () => {
        expect(write(patch)).to.deep.equal([refusal]);
      });
    }

    it('but not in a new ConfigMap', () => {
      expect(write({}, null)).to.include(onlyAcks);
    });
  });

  describe('let the controller add hosts of mirrors', () => {
    const contents = { source: 'data:,CA' };
    const file = (host: string, more: Json = {}): Json => {
      return { path: `/etc/containers/certs.d/${host}/ca.crt`, mode: 420, overwrite: true, contents, ...more };
    };
    const config: Json = {
      metadata: { name: '98-worker-oc-upgrade-bundle-mirror', labels: { role: 'worker' } },
      spec: { config: { ignition: { version: '3.2.0' }, storage: { files: [file('localhost:9690')] } } },
    };
    const map: Json = {
      metadata: { name: 'ours', namespace: 'openshift-config' },
      data: { 'localhost..9690': 'CA', 'r.example.com': 'theirs' },
    };
    const place = { group: 'machineconfiguration.openshift.io', resource: 'machineconfigs' };
    const change = (patch: Json, oldObject: Json | null = config): string[] =>
      review({ ...place, object: mergePatch(config, patch) as Json, oldObject, user: asController });
    const withFiles = (...files: Json[]): Json => ({ spec: { config: { storage: { files } } } });
    const trust = (patch: Json): string[] =>
      review({
        group: '',
        resource: 'configmaps',
        object: mergePatch(map, patch) as Json,
        oldObject: map,
        user: asController,
      });

    it('to the MachineConfigs and to the ConfigMap with their CA', () => {
      expect(change(withFiles(file('localhost:9690'), file('192.0.2.11:9690')))).to.deep.equal([]);
      expect(trust({ data: { '192.0.2.11..9690': 'CA' } })).to.deep.equal([]);
    });

    const added = file('192.0.2.11:9690');
    const refused: [string, Json][] = [
      ['another CA', withFiles(file('localhost:9690'), file('192.0.2.11:9690', { contents: { source: 'data:,X' } }))],
      ['another path', withFiles(file('localhost:9690'), { ...added, path: '/etc/shadow' })],
      ['a path beside', withFiles(file('localhost:9690'), file('x/../../../cron.d/a:1'))],
      ['another host', withFiles(file('localhost:9690'), file('quay.io:443'))],
      ['another mode', withFiles(file('localhost:9690'), file('192.0.2.11:9690', { mode: 0o4755 }))],
      ['an owner', withFiles(file('localhost:9690'), file('192.0.2.11:9690', { user: { name: 'core' } }))],
      ['one file less', withFiles(file('192.0.2.11:9690'))],
      ['units', { spec: { config: { systemd: { units: [{ name: 'a.service' }] } } } }],
      ['directories', { spec: { config: { storage: { directories: [{ path: '/a' }] } } } }],
      ['kernel arguments', { spec: { kernelArguments: ['a'] } }],
      ['another operating system', { spec: { osImageURL: 'quay.io/x' } }],
      ['another pool', { metadata: { labels: { role: 'master' } } }],
      ['another MachineConfig', { metadata: { name: '00-worker' } }],
    ];
    for (const [what, patch] of refused)
      it(`but not ${what}`, () => {
        expect(change(patch)).not.to.deep.equal([]);
      });

    it('but neither to new or removed MachineConfigs, nor another CA or another key to the ConfigMap', () => {
      expect(change({}, null)).not.to.deep.equal([]);
      expect(review({ ...place, object: null, oldObject: config, user: asController })).not.to.deep.equal([]);
      const data: Json[] = [
        { '192.0.2.11..9690': 'X' },
        { 'quay.io': 'CA' },
        { 'r.example.com': 'CA' },
        { 'r.example.com': null },
      ];
      for (const each of data) expect(trust({ data: each })).not.to.deep.equal([]);
    });
  });

  describe('let an agent write', () => {
    const lease = (node: string): Json => {
      const progress = { name: node, phase: 'Loaded', imagesLoaded: 1, imagesTotal: 1, bytes: 1 } as const;
      return { ...formatNodeReport({ bundle: 'x', progress }) };
    };
    const write = (object: Json | null, user: ReturnType<typeof asAgent>, oldObject: Json | null = null): string[] =>
      review({
        group: 'coordination.k8s.io',
        resource: 'leases',
        object,
        oldObject,
        user,
        namespace: String(((object ?? oldObject)?.['metadata'] as Json)['namespace']),
      });
    const controllerLease = {
      metadata: { name: 'controller', namespace: 'oc-upgrade-bundle' },
      spec: { holderIdentity: 'a' },
    };

    it('the Lease of its own node, and no other', () => {
      expect(write(lease('a'), asAgent('a'))).to.deep.equal([]);
      expect(write(lease('a'), asAgent('a'), lease('a'))).to.deep.equal([]);
      expect(write(lease('b'), asAgent('a'))).not.to.deep.equal([]);
      expect(write({ ...lease('a'), spec: { holderIdentity: 'b' } }, asAgent('a'))).not.to.deep.equal([]);
      expect(write({ ...lease('b'), spec: { holderIdentity: 'a' } }, asAgent('a'))).not.to.deep.equal([]);
      expect(write(null, asAgent('a'), lease('b'))).not.to.deep.equal([]);
      const long = 'n'.repeat(250);
      expect(write(lease(long), asAgent(long))).to.deep.equal([]);
    });

    it('no Lease of a controller, even if tokens do not name the node', () => {
      for (const user of [asAgent(), asAgent('a')]) expect(write(controllerLease, user)).not.to.deep.equal([]);
      expect(write(lease('a'), asAgent())).to.deep.equal([]);
      expect(write(controllerLease, asController, controllerLease)).to.deep.equal([]);
      expect(write(controllerLease, asController)).to.deep.equal([]);
      const stranger = { ...controllerLease, metadata: { name: 'other', namespace: 'oc-upgrade-bundle' } };
      expect(write(stranger, asController)).not.to.deep.equal([]);
      expect(write(lease('a'), asController)).not.to.deep.equal([]);
      const misplaced = { ...lease('a'), metadata: { name: 'agent-a', namespace: 'oc-upgrade-bundle' } };
      expect(write(misplaced, asAgent('a'))).not.to.deep.equal([]);
      expect(write(null, asController, lease('a'))).to.deep.equal([]);
      expect(write(null, asController, controllerLease)).not.to.deep.equal([]);
    });
  });

  it('let the controller change the image of agents and controllers, by digest, and nothing else of them', () => {
    const daemons = agentObjects({ image, executables: {}, admission: undefined, rules: true }).filter(
      ({ kind }) => kind === 'DaemonSet',
    ) as Json[];
    const write = (change: (container: Json, pod: Json, set: Json) => void): string[] =>
      daemons.flatMap((set) => {
        const object = structuredClone(set) as { metadata: Json; spec: { template: { spec: { containers: Json[] } } } };
        (object.metadata['annotations'] as Json | undefined) ??= { 'deprecated.daemonset.template.generation': '2' };
        const pod = object.spec.template.spec;
        change(pod.containers[0] ?? {}, pod, object);
        const place = { group: 'apps', resource: 'daemonsets', namespace: 'oc-upgrade-bundle' };
        return review({ ...place, object, oldObject: set, user: asController });
      });
    const next = image.replace('2'.repeat(64), '3'.repeat(64));
    expect(write((container) => (container['image'] = next))).to.deep.equal([]);
    const refused: ((container: Json, pod: Json, set: Json) => void)[] = [
      (container) => (container['image'] = 'quay.io/x:latest'),
      (container) => (container['command'] = ['/bin/sh']),
      (container) => (container['lifecycle'] = {}),
      (container) => delete container['readinessProbe'],
      (_, pod) => (pod['serviceAccountName'] = 'default'),
      (_, pod) => (pod['initContainers'] = []),
      (container, pod) => (pod['containers'] = [container, container]),
      (_, __, set) => ((set['spec'] as Json)['updateStrategy'] = {}),
      (_, __, set) => ((set['metadata'] as Json)['labels'] = {}),
    ];
    for (const change of refused) expect(write(change), change.toString()).to.have.length(daemons.length);
    const [set = {}] = daemons;
    const place = { group: 'apps', resource: 'daemonsets', namespace: 'oc-upgrade-bundle', user: asController };
    expect(review({ ...place, object: set, oldObject: null })).not.to.deep.equal([]);
    expect(review({ ...place, object: null, oldObject: set })).not.to.deep.equal([]);
  });

  it('prevent our accounts from allowing a bundle', () => {
    const record = (bundle: Json, spec: Json = {}): Json => ({ metadata: { name: 'x' }, spec: { bundle, ...spec } });
    const digest = `sha256:${'d'.repeat(64)}`;
    const write = (object: Json | null, oldObject: Json | null = null): string[] =>
      review({
        group: 'upgrade-bundle.openshift.io',
        resource: 'upgradebundles',
        object,
        oldObject,
        user: asController,
      });
    expect(write(record({}))).to.deep.equal([]);
    expect(write(record({ digest }))).not.to.deep.equal([]);
    expect(write(record({}, { allowExtraImages: [digest] }))).not.to.deep.equal([]);
    expect(write(record({}, { ignore: ['nodes'] }))).not.to.deep.equal([]);
    expect(write(record({ digest }), record({}))).not.to.deep.equal([]);
    expect(write(null, record({}))).not.to.deep.equal([]);
    const found = { name: 'x', annotations: { 'upgrade-bundle.openshift.io/found-on': 'worker-1' } };
    expect(write(null, { ...record({}), metadata: found })).to.deep.equal([]);
    expect(write(null, { ...record({ digest }), metadata: found })).not.to.deep.equal([]);
  });

  it('let the controller describe operating system streams by digest, and change nothing else of them', () => {
    const group = 'machineconfiguration.openshift.io';
    const notes = {
      'machineconfiguration.openshift.io/release-image-version': 'a',
      'machineconfiguration.openshift.io/release-payload-image': image,
    };
    const stream = (metadata: Json, spec: Json = { defaultStream: 'rhel-9' }): Json => ({
      metadata: { name: 'cluster', annotations: notes, ...metadata },
      spec,
    });
    const write = (object: Json, oldObject: Json | null = null): string[] =>
      review({ group, resource: 'osimagestreams', object, oldObject, user: asController });
    expect(write(stream({}))).to.deep.equal([]);
    expect(write(stream({}), stream({ annotations: { kept: 'yes' } }))).to.have.length(1);
    expect(
      write(stream({ annotations: { ...notes, kept: 'yes' } }), stream({ annotations: { kept: 'yes' } })),
    ).to.deep.equal([]);
    expect(write(stream({ name: 'other' }))).not.to.deep.equal([]);
    expect(write(stream({ annotations: { ...notes, 'example.com/x': 'y' } }))).not.to.deep.equal([]);
    expect(write(stream({ finalizers: ['x/y'] }), stream({}))).not.to.deep.equal([]);
    expect(write(stream({}, { defaultStream: 'rhel-10' }), stream({}))).not.to.deep.equal([]);
    const setStatus = (osImage: string): string[] => {
      const status = { availableStreams: [{ name: 'rhel-9', osImage, osExtensionsImage: image }] };
      const object = { ...stream({}), status };
      return review({ group, resource: 'osimagestreams/status', object, oldObject: stream({}), user: asController });
    };
    expect(setStatus(image)).to.deep.equal([]);
    expect(setStatus('quay.io/x:latest')).not.to.deep.equal([]);
  });
});
