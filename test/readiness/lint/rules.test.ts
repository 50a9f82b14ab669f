import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { evaluate } from '@marcbachmann/cel-js';
import { expect } from 'chai';
import { stringify } from 'yaml';
import { readContainers } from '../../../lib/readiness/lint/container.ts';
import { lintManifests } from '../../../lib/readiness/lint/lint.ts';
import {
  allRules,
  pullAlways,
  pullAlwaysExpression,
  volumePullsAlwaysExpression,
} from '../../../lib/readiness/lint/rules.ts';
import { makeContext } from '../../support/context.ts';
import { headingsOf } from '../../support/project/markdown.ts';

const digest = (digit: string): string => `quay.io/openshift/x@sha256:${digit.repeat(64)}`;
const known = digest('a');
const references = JSON.stringify({
  kind: 'ImageStream',
  apiVersion: 'image.openshift.io/v1',
  metadata: { name: '4.20.3' },
  spec: {
    tags: [
      { name: 'etcd', from: { kind: 'DockerImage', name: known } },
      { name: 'cli', from: { kind: 'DockerImage', name: 'quay.io/openshift/cli:v4' } },
    ],
  },
});

const object = (kind: string, content: object, apiVersion = 'v1'): object => ({
  apiVersion,
  kind,
  metadata: { name: 'x', namespace: 'openshift-x' },
  ...content,
});
const pod = (container: object): object =>
  object('Pod', { spec: { containers: [{ name: 'c', image: known, ...container }] } });
const volume = (image: object): object =>
  object('Pod', { spec: { containers: [{ name: 'c', image: known }], volumes: [{ name: 'v', image }] } });
const catalog = (spec: object): object => object('CatalogSource', { spec });
const clusterCatalog = (image: object): object =>
  object('ClusterCatalog', { spec: { source: { type: 'Image', image } } });
const stream = (tag: object): object => object('ImageStream', { spec: { tags: [{ name: 't', ...tag }] } });
const machine = (disk: object): object => {
  const template = { spec: { volumes: [{ name: 'd', ...disk }] } };
  return object('VirtualMachine', { spec: { template } }, 'kubevirt.io/v1');
};
const resource = (spec: object, apiVersion = 'ceph.rook.io/v1'): object => object('CephCluster', { spec }, apiVersion);
const kyverno = (rule: object, spec: object = {}): object =>
  object('ClusterPolicy', { spec: { ...spec, rules: [{ name: 'r', ...rule }] } }, 'kyverno.io/v1');
const verifying = { verifyImages: [{ imageReferences: ['quay.io/acme/*'] }] };
const enforced = { validationFailureAction: 'Enforce' };
const script = (text: string): object => object('ConfigMap', { data: { 'run.sh': text } });
const unit = (contents: string): object =>
  object('MachineConfig', { spec: { config: { systemd: { units: [{ name: 'x.service', contents }] } } } });
const from = (name: string): object => ({ from: { kind: 'DockerImage', name } });
const poll = { updateStrategy: { registryPoll: { interval: '10m' } } };

const registryDisk = { source: { registry: { url: 'docker://quay.io/containerdisks/fedora:latest' } } };
const dataVolume = object('DataVolume', { spec: registryDisk }, 'cdi.kubevirt.io/v1beta1');
const cronSpec = { schedule: '0 */12 * * *', managedDataSource: 'fedora', template: { spec: registryDisk } };
const cron = object('DataImportCron', { spec: cronSpec }, 'cdi.kubevirt.io/v1beta1');

/** Objects that each rule finds, and similar objects that it must not find. */
const pairs: Readonly<
  Record<string, { readonly caught: readonly (object | string)[]; readonly passed: readonly (object | string)[] }>
> = {
  'pull-always': {
    caught: [
      pod({ imagePullPolicy: 'Always' }),
      pod({ image: '', imagePullPolicy: 'Always' }),
      pod({ image: undefined, imagePullPolicy: 'Always' }),
      object('Pod', {
        spec: {
          containers: [{ name: 'a', image: known }],
          initContainers: [{ name: 'b', image: known, imagePullPolicy: 'Always' }],
        },
      }),
      volume({ reference: known, pullPolicy: 'Always' }),
      machine({ containerDisk: { image: known, imagePullPolicy: 'Always' } }),
    ],
    passed: [
      machine({ containerDisk: { image: known, imagePullPolicy: 'IfNotPresent' } }),
      pod({ imagePullPolicy: 'IfNotPresent' }),
      pod({ env: [{ name: 'imagePullPolicy', value: 'Always' }] }),
      volume({ reference: known, pullPolicy: 'IfNotPresent' }),
      object('Pod', {
        spec: { containers: [{ name: 'c', image: known }], volumes: [{ name: 'image', emptyDir: {} }] },
      }),
    ],
  },
  'pull-latest': {
    caught: [
      pod({ image: 'quay.io/x/y' }),
      pod({ image: 'quay.io:443/x/y:latest' }),
      volume({ reference: 'quay.io/x/y' }),
      machine({ containerDisk: { image: 'quay.io/x/y' } }),
    ],
    passed: [
      pod({ image: 'quay.io/x/y:v1' }),
      pod({ image: `quay.io/x/y:latest@sha256:${'a'.repeat(64)}` }),
      pod({ image: 'quay.io/x/y', imagePullPolicy: 'IfNotPresent' }),
      pod({ image: '${IMAGE}' }),
      pod({ image: '{{.Image}}' }),
      volume({ reference: 'quay.io/x/y', pullPolicy: 'Never' }),
    ],
  },
  'image-by-tag': {
    caught: [
      pod({ image: 'quay.io/x/y:v1' }),
      volume({ reference: 'quay.io/x/y:v1' }),
      machine({ containerDisk: { image: 'quay.io/x/y:v1' } }),
    ],
    passed: [
      machine({ containerDisk: { image: known } }),
      pod({}),
      volume({ reference: known }),
      pod({ image: 'quay.io/openshift/cli:v4' }),
      pod({ image: '<injected>' }),
    ],
  },
  'image-not-in-release': {
    caught: [pod({ image: digest('b') }), volume({ reference: digest('b') })],
    passed: [
      pod({ image: known.replace('quay.io', 'mirror.example.com:5000') }),
      volume({ reference: known.replace('quay.io', 'mirror.example.com:5000') }),
    ],
  },
  'reference-not-in-release': {
    caught: [
      pod({ env: [{ name: 'OPERAND_IMAGE', value: digest('b') }] }),
      pod({ args: ['--image=quay.io/x/y:v1'] }),
      object('ConfigMap', { data: { 'images.json': JSON.stringify({ operand: digest('b') }) } }),
    ],
    passed: [
      pod({ env: [{ name: 'OPERAND_IMAGE', value: known }] }),
      pod({ args: ['--url=https://quay.io/x/y:v1', '--address=quay.io:443'] }),
      object('Deployment', { metadata: { name: 'x', annotations: { image: digest('b') } } }),
    ],
  },
  'catalog-polls': {
    caught: [catalog({ image: known, ...poll }), clusterCatalog({ ref: known, pollIntervalMinutes: 10 })],
    passed: [catalog({ image: known }), clusterCatalog({ ref: known }), object('ConfigMap', { spec: poll })],
  },
  'catalog-by-tag': {
    caught: [catalog({ image: 'quay.io/x/y:v1' })],
    passed: [catalog({ image: known }), catalog({ address: 'catalog.shop.svc:50051' })],
  },
  'image-stream-scheduled': {
    caught: [stream({ ...from(known), importPolicy: { scheduled: true } })],
    passed: [
      stream({ ...from(known), importPolicy: { scheduled: false } }),
      stream({ ...from(known), importPolicy: {} }),
    ],
  },
  'image-stream-import': {
    caught: [stream(from(digest('b')))],
    passed: [stream(from(known)), stream({ from: { kind: 'ImageStreamTag', name: 'other:latest' } })],
  },
  'contacts-registry': {
    caught: ['podman pull quay.io/x/y', 'sudo -n podman --root /x pull $IMAGE']
      .map(script)
      .concat(
        unit('[Service]\nExecStartPre=-/usr/bin/podman pull quay.io/x/y\n'),
        unit('[Service]\nExecStart=podman \\\n  # the image\n  pull quay.io/x/y\n'),
        unit('[Container]\nImage=quay.io/x/y\nPull=newer\n'),
        unit('[Container]\nImage=quay.io/x/y\nPodmanArgs=--pull=always\n'),
        unit(`[Image]\nImage=${known}\n`),
        unit('[Artifact]\nArtifact=quay.io/x/y:1\n'),
        unit('[Build]\nImageTag=localhost/x\nPull=always\n'),
        pod({ command: ['/bin/sh', '-c', 'set -e\nskopeo inspect docker://quay.io/x/y'] }),
        pod({ lifecycle: { postStart: { exec: { command: ['crictl', 'pull', 'quay.io/x/y'] } } } }),
      ),
    passed: ['# a; podman pull quay.io/x/y', 'echo "podman pull quay.io/x/y"']
      .map(script)
      .concat(
        unit('[Service]\n# ExecStart=podman pull x\nExecStart=/usr/bin/podman start x\n'),
        unit('[Image]\nImage=quay.io/x/y:1\nPolicy=missing\n'),
        unit('[Build]\nImageTag=localhost/x\nPull=missing\n'),
        unit('[Container]\nImage=quay.io/x/y:1\nPodmanArgs=--cpus=2\n'),
        pod({ args: ['podman pull is not run here'] }),
        object('ConfigMap', { metadata: { name: 'x', annotations: { example: 'podman pull quay.io/x/y' } } }),
        object('PodMonitor', { spec: { description: 'podman pull quay.io/x/y\n' } }),
        object('ConfigMap', { data: { 'runbook.md': 'podman pull quay.io/x/y\n' } }),
      ),
  },
  'forces-pulls': {
    caught: [
      pod({ command: ['kube-apiserver', '--enable-admission-plugins=NodeRestriction,AlwaysPullImages'] }),
      object('KubeAPIServer', {
        spec: {
          unsupportedConfigOverrides: { apiServerArguments: { 'enable-admission-plugins': ['AlwaysPullImages'] } },
        },
      }),
      object('ConfigMap', {
        data: { 'config.yaml': 'apiServerArguments:\n  enable-admission-plugins:\n  - AlwaysPullImages\n' },
      }),
    ],
    passed: [
      pod({ command: ['kube-apiserver', '--disable-admission-plugins=AlwaysPullImages'] }),
      object('KubeAPIServer', { spec: { apiServerArguments: { 'disable-admission-plugins': ['AlwaysPullImages'] } } }),
    ],
  },
  'verifies-images': {
    caught: [
      kyverno(verifying, enforced),
      kyverno({ verifyImages: [{ image: 'quay.io/acme/*', failureAction: 'Enforce' }] }),
      object(
        'ImageValidatingPolicy',
        { spec: { matchImageReferences: [{ glob: 'quay.io/*' }] } },
        'policies.kyverno.io/v1',
      ),
      object('ClusterImagePolicy', { spec: { images: [{ glob: '**' }] } }, 'policy.sigstore.dev/v1beta1'),
    ],
    passed: [
      kyverno(verifying, { validationFailureAction: 'Audit' }),
      kyverno({ validate: { message: 'no' } }, enforced),
      object('ClusterImagePolicy', { spec: { images: [{ glob: '**' }], mode: 'warn' } }, 'policy.sigstore.dev/v1beta1'),
      object('ClusterImagePolicy', { spec: { scopes: ['quay.io'] } }, 'config.openshift.io/v1'),
    ],
  },
  'audits-images': {
    caught: [
      kyverno(verifying),
      kyverno(verifying, { validationFailureAction: 'Audit' }),
      object('ClusterImagePolicy', { spec: { images: [{ glob: '**' }], mode: 'warn' } }, 'policy.sigstore.dev/v1beta1'),
      object('ImageValidatingPolicy', { spec: { validationActions: ['Audit'] } }, 'policies.kyverno.io/v1'),
    ],
    passed: [kyverno(verifying, enforced), kyverno({ validate: { message: 'no' } })],
  },
  'build-pulls': {
    caught: ['dockerStrategy', 'sourceStrategy', 'customStrategy'].map((key) =>
      object('BuildConfig', { spec: { strategy: { [key]: { forcePull: true, ...from(known) } } } }),
    ),
    passed: [
      object('BuildConfig', { spec: { strategy: { dockerStrategy: { forcePull: false, ...from(known) } } } }),
      object('BuildConfig', { spec: { strategy: { dockerStrategy: from(known) } } }),
    ],
  },
  'disk-import-scheduled': {
    caught: [cron, object('HyperConverged', { spec: { dataImportCronTemplates: [cron] } }, 'hco.kubevirt.io/v1beta1')],
    passed: [dataVolume],
  },
  'disk-import': {
    caught: [
      dataVolume,
      object('VirtualMachine', { spec: { dataVolumeTemplates: [{ spec: registryDisk }] } }, 'kubevirt.io/v1'),
    ],
    passed: [cron, object('DataVolume', { spec: { source: { pvc: { name: 'x' } } } }, 'cdi.kubevirt.io/v1beta1')],
  },
  'resource-image': {
    caught: [
      resource({ cephVersion: { image: 'quay.io/ceph/ceph:v18.2' } }),
      resource({ operand: { image: digest('b'), imagePullPolicy: 'Always' } }, 'nfd.openshift.io/v1'),
      resource({ driver: { repository: 'nvcr.io/nvidia', image: 'driver', version: '550.54' } }, 'nvidia.com/v1'),
      resource({ image: { repository: 'acme/app', tag: '1', pullPolicy: 'IfNotPresent' } }),
      resource({ sidecar: { image: 'nginx:1.25' } }),
      resource({ initImage: 'quay.io/x/y:1' }),
      resource({ url: 'oci://ghcr.io/acme/app', ref: { tag: 'latest' } }, 'source.toolkit.fluxcd.io/v1'),
    ],
    passed: [
      resource({ cephVersion: { image: digest('b') } }),
      resource({ driver: { repository: 'nvcr.io/nvidia', image: 'driver', version: `sha256:${'b'.repeat(64)}` } }),
      resource({ image: 'rhcos', repository: 'https://git.example.com/x', url: 'https://quay.io/x/y:1' }),
      resource({ operand: { image: 'quay.io/openshift/cli:v4' } }),
      resource({ image: '${IMAGE}', url: 'oci://localhost:5000/x' }),
      object('DNS', { spec: { image: 'quay.io/x/y:1' } }, 'operator.openshift.io/v1'),
      machine({ containerDisk: { image: 'quay.io/x/y:v1' } }),
    ],
  },
  unreadable: {
    caught: ['kind: Pod\n  : [', 'a: *b\n', 'kind: Namespace\nkind: Pod\n  : ['],
    passed: ['{{if .X}}\nkind: {{.Kind}}\n{{end}}\n', '', '---\n---\n', 'kind: Namespace\n  : ['],
  },
};

const lint = async (files: Readonly<Record<string, string>>) =>
  lintManifests(
    { name: 'x', files: new Map(Object.entries({ 'image-references': references, ...files })) },
    makeContext(),
  );

describe('the rules of lint', () => {
  for (const { id, severity } of allRules) {
    it(`${id} finds objects that need a registry, and no look-alike`, async () => {
      const { caught = [], passed = [] } = pairs[id] ?? {};
      const find = async (objects: readonly (object | string)[]) => {
        const texts = objects.map((each, index) => [
          `${index}.yaml`,
          typeof each === 'string' ? each : stringify(each),
        ]);
        return (await lint(Object.fromEntries(texts) as Record<string, string>)).findings.filter(
          ({ rule }) => rule === id,
        );
      };
      const found = await find(caught);
      expect([...new Set(found.map(({ file }) => file))]).to.have.members(caught.map((_, index) => `${index}.yaml`));
      expect(new Set(found.map((finding) => finding.severity))).to.deep.equal(new Set([severity]));
      expect((await find(passed)).map(({ file, message }) => `${file}: ${message}`)).to.deep.equal([]);
    });
  }

  it('have a section each in docs/lint-rules.md, with the severity', () => {
    const page = readFileSync(fileURLToPath(new URL('../../../docs/lint-rules.md', import.meta.url)), 'utf8');
    expect(headingsOf(page)).to.include.members(allRules.map(({ id }) => id));
    for (const { id, severity } of allRules)
      expect(page).to.match(new RegExp(`^\\| \\[\`${id}\`\\]\\(#${id}\\) +\\| ${severity} `, 'm'));
  });

  it('mean the same in the admission policy', () => {
    for (const pullPolicy of ['Always', 'IfNotPresent', undefined]) {
      const v = { name: 'v', image: { reference: known, ...(pullPolicy !== undefined && { pullPolicy }) } };
      const [found] = readContainers({ volumes: [v] });
      expect(evaluate(volumePullsAlwaysExpression('v'), { v }), pullPolicy).to.equal(
        found && pullAlways.find(found).length > 0,
      );
    }
    for (const policy of ['Always', 'IfNotPresent', undefined]) {
      const c = { name: 'c', image: known, ...(policy !== undefined && { imagePullPolicy: policy }) };
      const [container] = readContainers({ containers: [c] });
      expect(evaluate(pullAlwaysExpression('c'), { c }), policy).to.equal(
        container && pullAlways.find(container).length > 0,
      );
    }
  });
});
