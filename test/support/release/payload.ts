import { createHash } from 'node:crypto';
import { stringify } from 'yaml';
import { created } from '../content/layers.ts';
import { pinningFiles } from './pinning.ts';
import type { ReleaseOptions, TestImage } from './release.ts';

/** The content of a payload's `release-manifests/`. */
export interface PayloadOptions extends Pick<ReleaseOptions, 'previous' | 'verification' | 'files' | 'commits'> {
  readonly version: string;
  readonly arch: string;
  readonly images: readonly TestImage[];
}

/** Returns the files of `release-manifests/`, in the order of the payload. */
export function payloadFiles(options: PayloadOptions): [name: string, text: string][] {
  const { verification, images } = options;
  const files: Record<string, string | undefined> = {
    '0000_00_cluster-version-operator_00_namespace.yaml': stringify(namespace('openshift-cluster-version')),
    '0000_12_etcd_01_operator.yaml': stringify(deployment('etcd-operator', images)),
    '0000_50_cluster-test_02_rules.yaml': `${stringify(namespace('openshift-test'))}---\n${stringify(namespace('openshift-test-monitoring'))}`,
    '0000_90_cluster-update-keys_configmap.yaml': verification && verificationConfigMap(verification),
    '0000_90_cluster-update-keys_note.json': JSON.stringify(namespace('openshift-config-managed'), null, 2),
    'image-references': JSON.stringify(imageReferences(options), null, 2),
    'release-metadata': JSON.stringify(releaseMetadata(options), null, 2),
    // The test releases of 4.19 pin images, as those from 4.19.12 on do.
    ...(/^(?:4\.(?:19|2\d)|5)\./.test(options.version) && pinningFiles(true)),
    ...options.files,
  };
  return Object.entries(files).filter((entry): entry is [string, string] => entry[1] !== undefined);
}

function imageReferences({ version, images, commits = {} }: PayloadOptions): object {
  return {
    kind: 'ImageStream',
    apiVersion: 'image.openshift.io/v1',
    metadata: {
      name: version,
      creationTimestamp: created,
      annotations: {
        'release.openshift.io/from-image-stream': 'ocp/test-art-latest',
        'release.openshift.io/from-release': `registry.ci.openshift.org/ocp/release:${version}-0.nightly`,
      },
    },
    spec: {
      lookupPolicy: { local: false },
      tags: images.map(({ name, pullspec }) => ({
        name,
        annotations: {
          'io.openshift.build.commit.id': commits[name] ?? createHash('sha1').update(name).digest('hex'),
          'io.openshift.build.commit.ref': '',
          'io.openshift.build.source-location': `https://github.com/openshift/${name}`,
          ...versionAnnotations(name, version),
        },
        from: { kind: 'DockerImage', name: pullspec },
        generation: null,
        importPolicy: {},
        referencePolicy: { type: '' },
      })),
    },
    status: { dockerImageRepository: '' },
  };
}

function versionAnnotations(name: string, version: string): Record<string, string> {
  const minor = Number(version.split('.')[1]);
  if (name === 'hyperkube') {
    return {
      'io.openshift.build.version-display-names': '',
      'io.openshift.build.versions': `kubernetes=1.${minor + 13}.4`,
    };
  }
  if (name !== 'machine-os-content' && !/^rhel-coreos(-\d+)?$/.test(name)) return {};
  return {
    'io.openshift.build.version-display-names': 'machine-os=Red Hat Enterprise Linux CoreOS',
    'io.openshift.build.versions': `machine-os=4${minor}.86.202302011200-0`,
  };
}

function releaseMetadata({ version, arch, previous = ['4.11.28', '4.12.2', '4.12.3'] }: PayloadOptions): object {
  return {
    kind: 'cincinnati-metadata-v0',
    version,
    previous,
    metadata: {
      url: 'https://access.redhat.com/errata/RHSA-2023:0769',
      ...(arch === 'multi' && { 'release.openshift.io/architecture': 'multi' }),
    },
  };
}

function verificationConfigMap({ publicKey, stores }: NonNullable<PayloadOptions['verification']>): string {
  const entries = stores.map((url, index): [string, string] => [`store-test-${index + 1}`, url]);
  const configMap = {
    apiVersion: 'v1',
    data: { ...Object.fromEntries<string>(entries), 'verifier-public-key-test': publicKey },
    kind: 'ConfigMap',
    metadata: {
      annotations: {
        'include.release.openshift.io/self-managed-high-availability': 'true',
        'release.openshift.io/verification-config-map': '',
      },
      creationTimestamp: null,
      name: 'release-verification',
      namespace: 'openshift-config-managed',
    },
  };
  return `# Release verification against a test key\n${stringify(configMap)}`;
}

function namespace(name: string): object {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name } };
}

function deployment(name: string, images: readonly TestImage[]): object {
  const image = images.find((candidate) => candidate.name === 'cluster-etcd-operator')?.pullspec ?? images[0]?.pullspec;
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name, namespace: 'openshift-etcd-operator' },
    spec: {
      replicas: 1,
      selector: { matchLabels: { app: name } },
      template: {
        metadata: { labels: { app: name } },
        spec: { containers: [{ name: 'operator', image, imagePullPolicy: 'IfNotPresent' }] },
      },
    },
  };
}
