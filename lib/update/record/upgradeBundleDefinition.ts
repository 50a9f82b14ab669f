import type { V1CustomResourceColumnDefinition, V1JSONSchemaProps } from '@kubernetes/client-node';
import type { Json, Written } from '#config/manifest';
import { isFields } from '#fields';
import { matches, type Schema as Stated } from '#schema';
import {
  bundleColumns,
  bundleSpec,
  bundleStatus,
  phases,
  rule,
  rulesField,
  upgradeBundleApi,
  type Phase,
} from './upgradeBundle.ts';

/** A schema of OpenAPI, with the extensions of Kubernetes. */
type Schema = Json<V1JSONSchemaProps>;

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
 * `bundle.file`.
 */
export function fitsSpec(field: string, text: string): boolean {
  const schema = field.split('.').reduce<Stated | undefined>((within, name) => within?.properties?.[name], bundleSpec);
  return schema !== undefined && matches(schema.items ?? schema, text);
}

function withoutRules(schema: Schema): Schema {
  const kept = Object.entries(schema).filter(([key]) => key !== rulesField);
  return Object.fromEntries(kept.map(([key, value]) => [key, isFields(value) ? withoutRules(value) : value]));
}

function column(name: string, jsonPath: string): Json<V1CustomResourceColumnDefinition> {
  return { name, type: 'string', jsonPath };
}

/**
 * Returns a rule that is true if the object has no phase, or one of these. `self` is the new object, `oldSelf` the old
 * one.
 */
function duringPhases(self: 'self' | 'oldSelf', allowed: readonly Phase[]): string {
  const listed = allowed.map((phase) => `'${phase}'`).join(', ');
  return `!has(${self}.status) || !has(${self}.status.phase) || ${self}.status.phase in [${listed}]`;
}

const root: Schema = {
  type: 'object',
  description: 'A bundle to update the cluster from, and the progress of that update.',
  required: ['spec'],
  properties: {
    apiVersion: { type: 'string' },
    kind: { type: 'string' },
    metadata: { type: 'object' },
    spec: bundleSpec,
    status: bundleStatus,
  },
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
