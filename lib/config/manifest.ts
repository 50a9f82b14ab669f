import { stringify } from 'yaml';

/** A Kubernetes object as plain data. */
export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

/** A Kubernetes object, and the path of its file in a mirror directory or a bundle. */
export interface ConfigManifest {
  /** The path, relative and with slashes: `config/signature/sha256/81154f5c03294534.yaml`. */
  readonly path: string;
  readonly object: KubernetesObject;
}

const firstKeys = ['apiVersion', 'kind', 'metadata', 'name', 'namespace'];

/**
 * Formats an object as YAML for `oc apply`: the same bytes for the same object, in any order of its keys. The fields
 * that identify the object come first. `indentSeq` is false for lists that are indented as oc prints them.
 */
export function formatManifest(object: KubernetesObject, { indentSeq = true } = {}): string {
  return stringify(object, {
    indentSeq,
    sortMapEntries: (a, b) => compareKeys(String(a.key), String(b.key)),
    lineWidth: 0,
    // oc and kubectl read YAML 1.1, where yes, no, on and off are booleans.
    compat: 'yaml-1.1',
    aliasDuplicateObjects: false,
  });
}

function compareKeys(a: string, b: string): number {
  const rank = (key: string): number => firstKeys.indexOf(key) + 1 || firstKeys.length + 1;
  return rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0);
}
