import type { V1MatchResources, V1Validation, V1Variable } from '@kubernetes/client-node';
import type { Json } from '#config/manifest';
import { signatureLabel } from '#config/signatures';
import { acknowledgements } from '#readiness/preflight';
import { streamAnnotations } from '#release/payload';
import { userOf } from '../record/accountAccess.ts';
import { agentNamespace, proposalAnnotation, reportNamespace, upgradeBundleApi } from '../record/upgradeBundle.ts';
import { writesReport } from './agentAccess.ts';
import type { AdmissionObject } from './pullPolicyAdmission.ts';

const apiVersion = 'admissionregistration.k8s.io/v1';

/**
 * Returns the policies (ValidatingAdmissionPolicy, Kubernetes 1.30 and OpenShift 4.17) that limit the writes of the
 * agents’ and the controller’s accounts further than roles can. They apply to no other account. They refuse a request
 * that they cannot evaluate.
 */
export function accountPolicies(): AdmissionObject[] {
  return accountLimits.flatMap(
    ({
      name: subject,
      group,
      version,
      resource,
      operations,
      namespace,
      condition,
      variables = {},
      validations,
    }): AdmissionObject[] => {
      const name = `${agentNamespace}-${subject}`;
      const place: Json<V1MatchResources> =
        namespace === undefined
          ? {}
          : { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } } };
      const declared = Object.entries(variables).map(([each, expression]): Json<V1Variable> => ({
        name: each,
        expression,
      }));
      const policy: AdmissionObject = {
        apiVersion,
        kind: 'ValidatingAdmissionPolicy',
        metadata: { name },
        spec: {
          failurePolicy: 'Fail',
          matchConstraints: {
            resourceRules: [{ apiGroups: [group], apiVersions: [version], operations, resources: [resource] }],
            ...place,
          },
          matchConditions: [
            {
              name: 'our-accounts',
              expression: `request.userInfo.username in ['${userOf('agent')}', '${userOf('controller')}']`,
            },
            ...(condition === undefined ? [] : [{ name: 'subject', expression: condition }]),
          ],
          ...(declared.length > 0 && { variables: declared }),
          validations: validations.map(([expression, message]): Json<V1Validation> => ({
            expression,
            message,
            reason: 'Forbidden',
          })),
        },
      };
      const binding: AdmissionObject = {
        apiVersion,
        kind: 'ValidatingAdmissionPolicyBinding',
        metadata: { name },
        spec: { policyName: name, validationActions: ['Deny'] },
      };
      return [policy, binding];
    },
  );
}

/** The key in the token of a pod that names its node, since Kubernetes 1.30. */
const nodeClaim = 'authentication.kubernetes.io/node-name';

/** A limit of the writes of our accounts to one kind of object. */
interface Limit {
  readonly name: string;
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly operations: readonly string[];
  readonly namespace?: string;
  /** The CEL expression that must be true for a write to be limited. */
  readonly condition?: string;
  readonly variables?: Readonly<Record<string, string>>;
  /** The CEL expressions that must be true, and the messages if they are not. */
  readonly validations: readonly (readonly [expression: string, message: string])[];
}

const keepsOthers = keeps('labels', 'finalizers', 'ownerReferences');
const keepsMetadata = keeps('labels', 'annotations', 'finalizers', 'ownerReferences');

/** The annotations before and after a write. */
const notesOf = {
  notes: fieldOr('object.metadata', 'annotations'),
  oldNotes: fieldOr('oldObject.metadata', 'annotations'),
};
const isOwnNote = `k.startsWith('${upgradeBundleApi.group}/')`;

const acks = acknowledgements.metadata;

const targetAnnotations = Object.values(streamAnnotations)
  .map((name) => `'${name}'`)
  .join(', ');

/** What the agents’ and the controller’s accounts may write. */
const accountLimits: readonly Limit[] = [
  {
    name: 'clusterversion',
    group: 'config.openshift.io',
    version: 'v1',
    resource: 'clusterversions',
    operations: ['UPDATE'],
    variables: {
      spec: 'dyn(object.spec)',
      oldSpec: 'dyn(oldObject.spec)',
      update: 'has(object.spec.desiredUpdate) ? dyn(object.spec.desiredUpdate) : dyn({})',
      oldUpdate: 'has(oldObject.spec.desiredUpdate) ? dyn(oldObject.spec.desiredUpdate) : dyn({})',
    },
    validations: [
      [sameBut('spec', 'oldSpec', "k == 'desiredUpdate'"), 'may change only desiredUpdate in the spec'],
      [keepsMetadata, 'may not change the metadata'],
      [
        "variables.update.all(k, k in ['image', 'version', 'force', 'acceptRisks'] || (k in " +
          'variables.oldUpdate && variables.update[k] == variables.oldUpdate[k])) && ' +
          "(!('acceptRisks' in variables.oldUpdate) || ('acceptRisks' in variables.update && " +
          "variables.oldUpdate['acceptRisks'].all(r, r in variables.update['acceptRisks'])))",
        'may set image and version of desiredUpdate, accept more risks, and nothing else',
      ],
      ["!('force' in variables.update) || variables.update['force'] == false", 'may not force an update'],
      [
        "'image' in variables.update && string(variables.update['image']).matches('@sha256:[0-9a-f]{64}$')",
        'may request a release image by digest only',
      ],
    ],
  },
  {
    name: 'signatures',
    group: '',
    version: 'v1',
    resource: 'configmaps',
    operations: ['CREATE', 'UPDATE'],
    condition: `object.metadata.namespace != '${acks.namespace}' && !${writesReport}`,
    validations: [
      [
        "object.metadata.namespace == 'openshift-config-managed' && " +
          "object.metadata.name.matches('^sha256-[0-9a-f]{64}$')",
        'may write ConfigMaps of release signatures only',
      ],
      [
        `has(object.metadata.labels) && '${signatureLabel}' in object.metadata.labels`,
        'may write ConfigMaps with the label of release signatures only',
      ],
      [
        '(!has(object.data) || size(object.data) == 0) && has(object.binaryData) && object.binaryData.all(k, ' +
          "k.startsWith(object.metadata.name + '-'))",
        'may write binaryData of release signatures only',
      ],
    ],
  },
  {
    name: 'acknowledgements',
    group: '',
    version: 'v1',
    resource: 'configmaps',
    operations: ['CREATE', 'UPDATE'],
    namespace: acks.namespace,
    variables: {
      data: fieldOr('object', 'data'),
      oldData: `oldObject == null ? {} : ${fieldOr('oldObject', 'data')}`,
      // The ConfigMap may be the site’s own, under any name.
      authorities: `variables.oldData.filter(k, k.startsWith('localhost..')).map(k, variables.oldData[k])`,
    },
    validations: [
      [
        `oldObject != null && (object.metadata.name == '${acks.name}' || size(variables.authorities) > 0)`,
        `may change only the ConfigMap ${acks.name} and that with the CA of the mirrors here`,
      ],
      [
        `oldObject == null || (${keepsMetadata} && ${fieldOr('object', 'binaryData')} ` +
          `== ${fieldOr('oldObject', 'binaryData')})`,
        'may not change the metadata',
      ],
      [
        keepsKeys(
          'data',
          'oldData',
          `(object.metadata.name == '${acks.name}' ? k.startsWith('ack-') && variables.data[k] == 'true' : ` +
            "k.matches('^[0-9.]+[.][.][0-9]+$') && variables.data[k] in variables.authorities)",
        ),
        'may add acknowledgements and hosts of the CA, and change nothing else',
      ],
    ],
  },
  {
    name: 'mirror-files',
    group: 'machineconfiguration.openshift.io',
    version: 'v1',
    resource: 'machineconfigs',
    operations: ['CREATE', 'UPDATE', 'DELETE'],
    variables: Object.fromEntries(
      ['object', 'oldObject'].flatMap((object) => [
        [`${object}Spec`, `${object} == null ? dyn({}) : dyn(${object}.spec)`],
        [`${object}Config`, `'config' in variables.${object}Spec ? variables.${object}Spec.config : dyn({})`],
        [`${object}Storage`, `'storage' in variables.${object}Config ? variables.${object}Config.storage : dyn({})`],
        [`${object}Files`, `'files' in variables.${object}Storage ? variables.${object}Storage.files : dyn([])`],
      ]),
    ),
    validations: [
      [
        'object != null && oldObject != null && ' +
          `object.metadata.name.matches('^98-.+-${agentNamespace}-mirror$') && ${keepsMetadata}`,
        'may change only the MachineConfigs with the CA of the mirrors',
      ],
      [
        [
          sameBut('objectSpec', 'oldObjectSpec', "k == 'config'"),
          sameBut('objectConfig', 'oldObjectConfig', "k == 'storage'"),
          sameBut('objectStorage', 'oldObjectStorage', "k == 'files'"),
        ].join(' && '),
        'may change only files of a MachineConfig',
      ],
      ['variables.oldObjectFiles.all(o, o in variables.objectFiles)', 'may neither change nor remove files'],
      [
        'variables.objectFiles.all(f, f in variables.oldObjectFiles || ' +
          "(f.path.matches('^/etc/containers/certs[.]d/[0-9.]+:[0-9]+/ca[.]crt$') && f.mode == 420 && " +
          "variables.oldObjectFiles.exists(o, f.contents == o.contents) && f.all(k, k in ['path', 'contents', " +
          "'mode', 'overwrite'])))",
        'may add only the CA of the mirrors, for more hosts',
      ],
    ],
  },
  {
    name: 'reports',
    group: 'coordination.k8s.io',
    version: 'v1',
    resource: 'leases',
    operations: ['CREATE', 'UPDATE', 'DELETE'],
    namespace: reportNamespace,
    variables: {
      name: 'object == null ? oldObject.metadata.name : object.metadata.name',
      holder: "object == null || !has(object.spec.holderIdentity) ? '' : object.spec.holderIdentity",
      node:
        `has(request.userInfo.extra) && '${nodeClaim}' in request.userInfo.extra ? ` +
        `request.userInfo.extra['${nodeClaim}'][0] : ''`,
    },
    validations: [
      [
        `request.userInfo.username != '${userOf('agent')}' || (object != null && variables.name.startsWith('agent-'))`,
        'an agent may write the Lease of its node only',
      ],
      [
        // Names that are too long for a Lease are hashed.
        `request.userInfo.username != '${userOf('agent')}' || variables.node == '' || (variables.holder == ` +
          'variables.node && ' +
          "(variables.name == 'agent-' + variables.node || (size(variables.node) > 240 && " +
          "variables.name.matches('^agent-[0-9a-f]{64}$'))))",
        'an agent may write the Lease of its own node only',
      ],
      [
        `request.userInfo.username != '${userOf('controller')}' || object == null`,
        'the controller may delete reports only',
      ],
    ],
  },
  {
    name: 'lease',
    group: 'coordination.k8s.io',
    version: 'v1',
    resource: 'leases',
    operations: ['CREATE', 'UPDATE', 'DELETE'],
    namespace: agentNamespace,
    validations: [
      [
        `request.userInfo.username == '${userOf('controller')}' && object != null && object.metadata.name == ` +
          "'controller'",
        'only the controller may write a Lease here, and only its own',
      ],
    ],
  },
  {
    name: 'agents',
    group: 'apps',
    version: 'v1',
    resource: 'daemonsets',
    operations: ['CREATE', 'UPDATE', 'DELETE'],
    namespace: agentNamespace,
    variables: Object.fromEntries(
      ['object', 'oldObject'].flatMap((object) => [
        [`${object}Spec`, `${object} == null ? dyn({}) : dyn(${object}.spec)`],
        [`${object}Pod`, `${object} == null ? dyn({}) : dyn(${object}.spec.template.spec)`],
        [`${object}Container`, `${object} == null ? dyn({}) : dyn(${object}.spec.template.spec.containers[0])`],
      ]),
    ),
    validations: [
      [
        // Annotations are not compared, because the API server itself counts templates in one.
        'object != null && oldObject != null && ' +
          `${keeps('labels')} && ` +
          'object.spec.template.metadata == oldObject.spec.template.metadata && ' +
          'size(object.spec.template.spec.containers) == 1 && size(oldObject.spec.template.spec.containers) == 1 && ' +
          [
            keepsKeys('objectSpec', 'oldObjectSpec', "k == 'template'"),
            keepsKeys('objectPod', 'oldObjectPod', "k == 'containers'"),
            keepsKeys('objectContainer', 'oldObjectContainer', "k == 'image'"),
          ].join(' && '),
        'may change only the image of the agents',
      ],
      [
        "object == null || string(variables.objectContainer['image']).matches('@sha256:[0-9a-f]{64}$')",
        'may name an image by digest only',
      ],
    ],
  },
  {
    name: 'pools',
    group: 'machineconfiguration.openshift.io',
    version: 'v1',
    resource: 'machineconfigpools',
    operations: ['UPDATE'],
    variables: {
      spec: 'dyn(object.spec)',
      oldSpec: 'dyn(oldObject.spec)',
      ...notesOf,
    },
    validations: [
      [sameBut('spec', 'oldSpec', "k == 'paused'"), 'may only pause and resume a pool'],
      [`${keepsOthers} && ${sameBut('notes', 'oldNotes', isOwnNote)}`, 'may change only its own annotations of a pool'],
    ],
  },
  {
    name: 'health-checks',
    group: 'machine.openshift.io',
    version: 'v1beta1',
    resource: 'machinehealthchecks',
    operations: ['UPDATE'],
    variables: notesOf,
    validations: [
      ['dyn(object.spec) == dyn(oldObject.spec)', 'may only pause and resume a MachineHealthCheck'],
      [
        `${keepsOthers} && ${sameBut('notes', 'oldNotes', `k == 'cluster.x-k8s.io/paused' || ${isOwnNote}`)}`,
        'may change only its own annotations of a MachineHealthCheck, and its pause',
      ],
    ],
  },
  {
    name: 'autoscalers',
    group: 'autoscaling.openshift.io',
    version: 'v1',
    resource: 'clusterautoscalers',
    operations: ['UPDATE'],
    variables: {
      spec: 'dyn(object.spec)',
      oldSpec: 'dyn(oldObject.spec)',
      ...Object.fromEntries(
        ['spec', 'oldSpec'].flatMap((spec) => [
          [`${spec}Limits`, `'resourceLimits' in variables.${spec} ? variables.${spec}['resourceLimits'] : dyn({})`],
          [`${spec}Down`, `'scaleDown' in variables.${spec} ? variables.${spec}['scaleDown'] : dyn({})`],
        ]),
      ),
      ...notesOf,
    },
    validations: [
      [
        [
          sameBut('spec', 'oldSpec', "k in ['resourceLimits', 'scaleDown']"),
          sameBut('specLimits', 'oldSpecLimits', "k == 'maxNodesTotal'"),
          sameBut('specDown', 'oldSpecDown', "k == 'enabled'"),
        ].join(' && '),
        'may change only maxNodesTotal and scaleDown.enabled of a ClusterAutoscaler',
      ],
      [
        `${keepsOthers} && ${sameBut('notes', 'oldNotes', isOwnNote)}`,
        'may change only its own annotations of a ClusterAutoscaler',
      ],
    ],
  },
  {
    name: 'streams',
    group: 'machineconfiguration.openshift.io',
    version: 'v1',
    resource: 'osimagestreams',
    operations: ['CREATE', 'UPDATE'],
    variables: {
      notes: fieldOr('object.metadata', 'annotations'),
      oldNotes: `oldObject == null ? {} : ${fieldOr('oldObject.metadata', 'annotations')}`,
    },
    validations: [
      ["object.metadata.name == 'cluster'", 'may write the OSImageStream “cluster” only'],
      ['oldObject == null || dyn(object.spec) == dyn(oldObject.spec)', 'may not change the default stream'],
      [`oldObject == null || ${keepsOthers}`, 'may not change the metadata'],
      [
        keepsKeys('notes', 'oldNotes', `k in [${targetAnnotations}]`),
        'may change only the annotations about the release',
      ],
    ],
  },
  {
    name: 'stream-status',
    group: 'machineconfiguration.openshift.io',
    version: 'v1',
    resource: 'osimagestreams/status',
    operations: ['UPDATE'],
    validations: [
      [
        'has(object.status.availableStreams) && object.status.availableStreams.all(s, [s.osImage, ' +
          's.osExtensionsImage].all(i, ' +
          "string(i).matches('@sha256:[0-9a-f]{64}$')))",
        'may name operating system images by digest only',
      ],
    ],
  },
  {
    name: 'records',
    group: upgradeBundleApi.group,
    version: upgradeBundleApi.version,
    resource: 'upgradebundles',
    operations: ['CREATE', 'UPDATE', 'DELETE'],
    validations: [
      [
        '(object == null || oldObject == null) && [object, oldObject].all(o, o == null || ' +
          '(!has(o.spec.bundle.digest) && !has(o.spec.allowExtraImages) && !has(o.spec.acknowledge) && ' +
          '!has(o.spec.acceptRisks) && !has(o.spec.ignore)))',
        'may create and delete UpgradeBundles without a digest only: administrators allow a bundle, and what ' +
          'it may accept',
      ],
      [
        `object != null || (has(oldObject.metadata.annotations) && '${proposalAnnotation}' in ` +
          'oldObject.metadata.annotations)',
        'may delete only an UpgradeBundle that it has created',
      ],
    ],
  },
];

/** Returns the expression that two variables differ only in keys `k` that fulfil a condition. */
function sameBut(now: string, before: string, condition: string): string {
  return keepsKeys(now, before, condition, `${condition} || `);
}

/** Returns the same, but that no key is removed. */
function keepsKeys(now: string, before: string, condition: string, removal = ''): string {
  const [a, b] = [`variables.${now}`, `variables.${before}`];
  return `${a}.all(k, ${condition} || (k in ${b} && ${a}[k] == ${b}[k])) && ${b}.all(k, ${removal}k in ${a})`;
}

/** Returns the expression that a write changes none of these fields of the metadata. */
function keeps(...fields: readonly string[]): string {
  return fields
    .map((field) => `${fieldOr('object.metadata', field)} == ${fieldOr('oldObject.metadata', field)}`)
    .join(' && ');
}

function fieldOr(object: string, field: string): string {
  const empty = ['labels', 'annotations', 'data', 'binaryData'].includes(field) ? '{}' : '[]';
  return `(has(${object}.${field}) ? ${object}.${field} : ${empty})`;
}
