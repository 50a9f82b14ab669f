import type { Context } from '../context.ts';
import { fieldsOf } from '../fields.ts';
import type { PayloadFiles } from './payload.ts';
import { readPayloadObjects } from './payloadObjects.ts';
import { listRuntimeGates, type GateConditions } from './runtimeGates.ts';
import { compareVersions, isOlder, isSameMinor } from './version.ts';

/**
 * A gate of a release: an administrator must acknowledge it before the cluster is updated to another minor version
 * (ConfigMap `admin-gates`).
 */
export interface AdminGate {
  /** The name of the acknowledgement: `ack-4.18-kube-1.32-api-removals-in-4.19`. */
  readonly name: string;
  /** What to check before, in one line. */
  readonly text: string;
}

/** A release on a path of updates, with its gates for the update after it. */
export interface GatedRelease {
  readonly version: string;
  readonly gates: readonly AdminGate[];
}

/** A gate with the version of the update that it holds for. */
export interface RequiredGate extends AdminGate {
  readonly version: string;
  /**
   * Set for a gate that neither the cluster nor a payload names yet, because an operator adds it at run time. It has the
   * condition in words, and whether that is known to hold.
   */
  readonly expected?: { readonly certain: boolean; readonly condition: string };
}

/**
 * Lists the gates of the updates from a release to others that are later, in the order of the updates. `site`: what
 * decides which gates operators add at run time; without it, only the gates that are named.
 */
export function listRequiredGates(
  running: GatedRelease,
  releases: readonly GatedRelease[],
  site?: GateConditions,
): RequiredGate[] {
  const path = releases
    .filter(({ version }) => isOlder(running.version, version))
    .toSorted((a, b) => compareVersions(a.version, b.version));
  return path.flatMap(({ version }, index) => {
    const before = path[index - 1] ?? running;
    if (isSameMinor(before.version, version)) return [];
    const named = before.gates.map((gate) => ({ ...gate, version }));
    const known = new Set(named.map(({ name }) => name));
    const added = (site ? listRuntimeGates(before.version, site) : []).filter(({ name }) => !known.has(name));
    // The operators of the running release have added theirs already, unless its patch release is older than the gate.
    const isRunning = before === running;
    const expected = added
      .filter(({ holds }) => holds || !isRunning)
      .map(({ name, text, condition, holds }) => {
        return { name, text, version, expected: { certain: holds && !isRunning, condition } };
      });
    return [...named, ...expected];
  });
}

/** Describes a gate with its text. */
export function describeGate({ name, text, version, expected }: RequiredGate): string {
  const gate = `the acknowledgement ${name}: “${text}”`;
  if (!expected) return `the update to ${version} requires ${gate}`;
  const { certain, condition } = expected;
  return certain
    ? `the update to ${version} will require, because ${condition}, ${gate}`
    : `the update to ${version} may require, if ${condition}, ${gate}`;
}

const longest = 900;

// The version operator evaluates only names of this form (cluster-version-operator, adminack.go).
const gateName = /^ack-([45]\.\d{1,5})-[^-][-._a-zA-Z0-9]{0,200}$/;

/** Returns the gates in the data of the ConfigMap that hold for updates from a version, sorted by name. */
export function listGates(data: unknown, version: string): AdminGate[] {
  return Object.entries(fieldsOf(data))
    .flatMap(([name, value]) => {
      const minor = gateName.exec(name)?.[1];
      const text = String(value)
        .replace(/[\s\p{Cc}]+/gu, ' ')
        .trim()
        .slice(0, longest);
      return minor !== undefined && isSameMinor(`${minor}.0`, version) ? [{ name, text }] : [];
    })
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * Reads the gates in the manifests of a payload that hold for updates from its version. Skips a file that cannot be
 * read, with a warning.
 */
export function readPayloadGates(files: PayloadFiles, version: string, context: Context): AdminGate[] {
  return readPayloadObjects(files, 'admin-gates', context)
    .filter(({ object: { kind, metadata } }) => kind === 'ConfigMap' && fieldsOf(metadata)['name'] === 'admin-gates')
    .flatMap(({ object }) => listGates(object['data'], version));
}
