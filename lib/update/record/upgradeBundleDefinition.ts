import type { V1CustomResourceColumnDefinition, V1JSONSchemaProps, V1ValidationRule } from '@kubernetes/client-node';
import { ignorableChecks } from '#cluster/finding';
import type { Json, Written } from '#config/manifest';
import { fieldsAt, fieldsOf, isFields } from '#fields';
import {
  backupModes,
  bundleColumns,
  hopPhases,
  nodePhases,
  phases,
  upgradeBundleApi,
  type Phase,
} from './upgradeBundle.ts';

/** A schema of OpenAPI, with the extensions of Kubernetes. */
type Schema = Json<V1JSONSchemaProps>;

const rulesField = 'x-kubernetes-validations';

/**
 * Returns the CustomResourceDefinition of UpgradeBundle. Its CEL rules need Kubernetes 1.25 (OpenShift 4.12); earlier
 * versions refuse them, so `rules: false` leaves them out.
 */
export function upgradeBundleDefinition({ rules = true } = {}): Written<'CustomResourceDefinition'> {
  const { group, version } = upgradeBundleApi;
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `upgradebundles.${group}` },
    spec: {
      group,
      scope: 'Cluster',
      names: {
        kind: 'UpgradeBundle',
        listKind: 'UpgradeBundleList',
        plural: 'upgradebundles',
        singular: 'upgradebundle',
      },
      versions: [
        {
          name: version,
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: [
            column(bundleColumns.version, '.status.version'),
            column(bundleColumns.phase, '.status.phase'),
            column(bundleColumns.nodesReady, '.status.nodesReady'),
            column('Progress', '.status.progress'),
            { ...column('Age', '.metadata.creationTimestamp'), type: 'date' },
            // Agents read this column often. Users see it with `-o wide`.
            { ...column(bundleColumns.turn, '.status.turn'), priority: 1 },
            { ...column(bundleColumns.base, '.status.base'), priority: 1 },
            { ...column(bundleColumns.backupNode, '.status.backupNode'), priority: 1 },
            { ...column(bundleColumns.generation, '.metadata.generation'), type: 'integer', priority: 1 },
            { ...column(bundleColumns.uid, '.metadata.uid'), priority: 1 },
            { ...column(bundleColumns.size, '.status.size'), type: 'integer', priority: 1 },
            { ...column(bundleColumns.head, '.status.head'), priority: 1 },
            { ...column(bundleColumns.reason, '.status.reason'), priority: 1 },
          ],
          schema: { openAPIV3Schema: rules ? root : withoutRules(root) },
        },
      ],
    },
  };
}

/**
 * Returns whether the API server accepts a text as a field of the spec, or as an item of it: `backupTo`, or
 * `bundle.file`. A field without a form accepts each text.
 */
export function fitsSpec(field: string, text: string): boolean {
  const schema = fieldsAt(spec, ...field.split('.').flatMap((name) => ['properties', name]));
  const { pattern = '', minLength = 0, maxLength = Infinity } = { ...schema, ...fieldsOf(schema['items']) };
  // A length counts characters, not code units.
  const { length } = Array.from(text);
  return length >= Number(minLength) && length <= Number(maxLength) && new RegExp(String(pattern), 'u').test(text);
}

function withoutRules(schema: Schema): Schema {
  const kept = Object.entries(schema).filter(([key]) => key !== rulesField);
  return Object.fromEntries(kept.map(([key, value]) => [key, isFields(value) ? withoutRules(value) : value]));
}

function column(name: string, jsonPath: string): Json<V1CustomResourceColumnDefinition> {
  return { name, type: 'string', jsonPath };
}

function rule(expression: string, message: string): Json<V1ValidationRule> {
  return { rule: expression, message };
}

/**
 * Returns a rule that is true if the object has no phase, or one of these. `self` is the new object, `oldSelf` the old
 * one.
 */
function duringPhases(self: 'self' | 'oldSelf', allowed: readonly Phase[]): string {
  const listed = allowed.map((phase) => `'${phase}'`).join(', ');
  return `!has(${self}.status) || !has(${self}.status.phase) || ${self}.status.phase in [${listed}]`;
}

const digest: Schema = { type: 'string', pattern: '^sha256:[0-9a-f]{64}$' };
const count: Schema = { type: 'integer', format: 'int64', minimum: 0 };
const message: Schema = { type: 'string', maxLength: 32768 };
const version: Schema = { type: 'string', maxLength: 128, pattern: '^[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9A-Za-z.-]+)?$' };

const path: Schema = {
  type: 'string',
  maxLength: 4096,
  pattern: '^(/[^/\\x00-\\x1f\\x7f]+)+$',
  [rulesField]: [rule("!self.matches('(^|/)[.][.]?(/|$)')", 'must be a path without . and ..')],
};

const bundle: Schema = {
  type: 'object',
  description: 'The bundle that the cluster may be updated from.',
  default: {},
  properties: {
    file: {
      ...path,
      description:
        'A device or file on one of the nodes, such as /dev/sdb. If absent, the media of all nodes are searched.',
    },
    digest: {
      ...digest,
      description:
        'Digest of the whole bundle, as in the .sha256 file beside it. Without it, the update does not go past Detected.',
    },
    version: { ...version, description: 'Version of the last release of the bundle. Another bundle is refused.' },
    releaseDigest: { ...digest, description: 'Digest of the last release of the bundle. Another bundle is refused.' },
  },
  [rulesField]: [
    rule(
      '!has(oldSelf.digest) || (has(self.digest) && self.digest == oldSelf.digest)',
      'digest cannot be changed: another bundle is another UpgradeBundle',
    ),
    ...['version', 'releaseDigest'].map((field) =>
      rule(
        `!has(oldSelf.${field}) || (has(self.${field}) && self.${field} == oldSelf.${field})`,
        `${field} cannot be changed: another bundle is another UpgradeBundle`,
      ),
    ),
  ],
};

const spec: Schema = {
  type: 'object',
  required: ['bundle'],
  properties: {
    bundle,
    hold: {
      type: 'boolean',
      default: false,
      description: 'Load and pin the images, then wait before the update starts.',
    },
    holdBetween: {
      type: 'boolean',
      description:
        'Of several updates, load and pin the images of each one after the first, then wait before that update begins.',
    },
    controlPlaneOnly: {
      type: 'boolean',
      description:
        'Update from one extended (EUS) release to the next one with all pools paused, except master, until the control plane runs ' +
        'the last release. Nodes of the other pools then restart once. If it is removed, the pools are resumed.',
    },
    backup: {
      type: 'string',
      enum: backupModes,
      description: 'Whether etcd is backed up on a control plane node before each update; on if absent.',
    },
    backupTo: {
      ...path,
      description: 'A folder of a drive that is mounted on the node with the backup. The backup is copied there.',
    },
    allowExtraImages: {
      type: 'array',
      description:
        'Digests of the extra images that nodes load, although the release signature does not cover them. All others are left out.',
      items: digest,
      maxItems: 500,
      'x-kubernetes-list-type': 'set',
    },
    acknowledge: {
      type: 'array',
      description:
        'Names of the acknowledgements (admin-acks) that may be given for the updates. An update that requires another one does not begin.',
      items: { type: 'string', maxLength: 253, pattern: '^ack-[0-9]+[.][0-9]+-[-._a-zA-Z0-9]+$' },
      maxItems: 64,
      'x-kubernetes-list-type': 'set',
    },
    acceptRisks: {
      type: 'array',
      description:
        'Names of the known risks of updates that the cluster may accept. An update with another known risk does not begin.',
      items: { type: 'string', minLength: 1, maxLength: 256, pattern: '^[^\\x00-\\x1f\\x7f]+$' },
      maxItems: 64,
      'x-kubernetes-list-type': 'set',
    },
    windows: {
      type: 'array',
      description:
        'Weekly times in which an update may start, such as “Sat 22:00-04:00 Europe/Berlin”. Loading does not wait for them.',
      items: {
        type: 'string',
        maxLength: 100,
        pattern: '^[A-Za-z,-]+ +[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2} +[A-Za-z][A-Za-z0-9_+/-]*$',
      },
      maxItems: 16,
      'x-kubernetes-list-type': 'set',
    },
    windowNeeds: {
      type: 'string',
      description: 'The time that must be left in a window when an update starts; 2h if absent.',
      maxLength: 20,
      pattern: '^([0-9]+([.][0-9]+)?(ms|s|m|h))+$|^[0-9]+$',
    },
    ignore: {
      type: 'array',
      description:
        'Blockers that are overruled: a check, or a check and an object, such as drains:poddisruptionbudget/shop/web. ' +
        'Signatures, the allowed bundle and the version path cannot be overruled.',
      items: { type: 'string', maxLength: 512, pattern: `^(${ignorableChecks.join('|')})(:[\\x21-\\x7e]+)?$` },
      maxItems: 64,
      'x-kubernetes-list-type': 'set',
    },
  },
};

const condition: Schema = {
  type: 'object',
  required: ['type', 'status', 'lastTransitionTime', 'reason', 'message'],
  properties: {
    type: { type: 'string', maxLength: 316, pattern: '^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$' },
    status: { type: 'string', enum: ['True', 'False', 'Unknown'] },
    observedGeneration: count,
    lastTransitionTime: { type: 'string', format: 'date-time' },
    reason: { type: 'string', maxLength: 1024, pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$' },
    message,
  },
};

const node: Schema = {
  type: 'object',
  required: ['name', 'phase', 'imagesLoaded', 'imagesTotal', 'bytes'],
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 253 },
    phase: { type: 'string', enum: nodePhases },
    imagesLoaded: count,
    imagesTotal: count,
    bytes: { ...count, description: 'Of the blobs that the node has.' },
    free: { ...count, description: 'Bytes that are free where the node keeps images.' },
    size: { ...count, description: 'Bytes of that file system.' },
    system: {
      type: 'object',
      description: 'The file system with the copy of the bundle and the backups, if it is another one.',
      required: ['free', 'size'],
      properties: { free: count, size: count },
    },
    database: { ...count, description: 'Bytes of the etcd database, on a node that has one.' },
    message,
  },
  [rulesField]: [rule('self.imagesLoaded <= self.imagesTotal', 'imagesLoaded exceeds imagesTotal')],
};

const name: Schema = { type: 'string', maxLength: 253 };

const backup: Schema = {
  type: 'object',
  required: ['node', 'path', 'version', 'time', 'size', 'digest'],
  properties: {
    node: name,
    path: { type: 'string', maxLength: 4096 },
    copy: { type: 'string', maxLength: 4096 },
    version: { ...version, description: 'Version that the cluster ran.' },
    time: { type: 'string', format: 'date-time' },
    size: { ...count, description: 'Bytes of the etcd snapshot.' },
    digest,
    pools: listByKey({ type: 'object', required: ['name', 'config'], properties: { name, config: name } }, 'name', 100),
  },
};

const release: Schema = { type: 'string', maxLength: 1024, pattern: '^[^@\\s]+@sha256:[0-9a-f]{64}$' };

const hop: Schema = {
  type: 'object',
  required: ['version', 'release', 'phase'],
  properties: { version, release, phase: { type: 'string', enum: hopPhases } },
};

const status: Schema = {
  type: 'object',
  properties: {
    phase: { type: 'string', enum: phases },
    version,
    base: { ...version, description: 'Version of the base release of a delta bundle.' },
    size: { ...count, description: 'Bytes of the bundle. A node fetches no more from other nodes.' },
    head: {
      type: 'string',
      maxLength: 100,
      pattern: '^[0-9]{1,15}:sha256:[0-9a-f]{64}$',
      description: 'Bytes before the first blob of the bundle, and their digest. Nodes check what they fetch by it.',
    },
    release,
    nodesReady: { type: 'string', pattern: '^[0-9]+/[0-9]+$', maxLength: 20 },
    progress: { type: 'string', pattern: '^(100|[0-9]{1,2})%$', maxLength: 4 },
    turn: { type: 'string', maxLength: 253, description: 'The control-plane node whose turn it is to load.' },
    backupNode: { type: 'string', maxLength: 253, description: 'The control-plane node that is to back up etcd.' },
    backups: listByKey(backup, 'path', 8),
    reportKey: {
      type: 'string',
      pattern: '^[0-9a-f]{64}$',
      description: 'SHA-256 of the public key (SPKI) that signs the reports of the cluster.',
    },
    lastProgressTime: { type: 'string', format: 'date-time', description: 'When the update last made progress.' },
    observedGeneration: count,
    conditions: listByKey(condition, 'type', 32),
    reason: {
      type: 'string',
      maxLength: 64,
      pattern: '^[A-Z][A-Za-z]*$',
      description: 'Reason of the condition that the update waits for. Agents show it on the screens of their nodes.',
    },
    hops: listByKey(hop, 'version', 16),
    nodes: listByKey(node, 'name', 2000),
  },
};

const root: Schema = {
  type: 'object',
  description: 'A bundle to update the cluster from, and the progress of that update.',
  required: ['spec'],
  properties: { apiVersion: { type: 'string' }, kind: { type: 'string' }, metadata: { type: 'object' }, spec, status },
  [rulesField]: [
    // A rule on the object, because a rule on the status does not run if the status is removed.
    rule(
      "!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase != 'Completed' || " +
        "(has(self.status) && has(self.status.phase) && self.status.phase == 'Completed')",
      'a completed update stays completed',
    ),
    rule(
      `${duringPhases('self', ['Detected', 'Failed'])} || has(self.spec.bundle.digest)`,
      'a bundle whose digest spec.bundle.digest does not allow cannot go past Detected',
    ),
    rule(
      `!self.spec.hold || oldSelf.spec.hold || ${duringPhases('oldSelf', phases.filter(canBeHeld))}`,
      'the update has begun: it can no longer be put on hold',
    ),
  ],
};

function canBeHeld(phase: Phase): boolean {
  return phase !== 'Upgrading' && phase !== 'Completed';
}

function listByKey(items: Schema, key: string, maxItems: number): Schema {
  return { type: 'array', items, maxItems, 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': [key] };
}
