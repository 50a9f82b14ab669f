import type { Context } from '#context';
import { fieldsOf } from '#fields';
import { flag, list, object, optional, text, type Static } from '#schema';
import { compareVersions, isOlder, isSameMinor } from '../version.ts';
import { type PayloadFiles, readPayloadObjects } from './payload.ts';

/** The statement of AdminGate. */
export const adminGate = object({
  /** The name of the acknowledgement: `ack-4.18-kube-1.32-api-removals-in-4.19`. */
  name: text(),
  /** What to check before, in one line. */
  text: text(),
});

/**
 * A gate of a release: an administrator must acknowledge it before the cluster is updated to another minor version
 * (ConfigMap `admin-gates`).
 */
export type AdminGate = Static<typeof adminGate>;

/** A release on a path of updates, with its gates for the update after it. */
export interface GatedRelease {
  readonly version: string;
  readonly gates: readonly AdminGate[];
}

/** A gate with the version of the update that it holds for. */
export interface RequiredGate extends AdminGate {
  readonly version: string;
  /**
   * Set for a gate that neither the cluster nor a payload names yet, because an operator adds it at run time. It has
   * the condition in words, and whether that is known to hold.
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

/** Describes a gate with its text, and whether the update requires it for certain. */
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

/** The statement of GateConditions. */
export const gateConditions = object({
  /** The type of its platform (Infrastructure `cluster`), such as `VSphere`. */
  platform: optional(text()),
  /** Whether its platform is Azure Stack Hub. */
  isAzureStack: optional(flag()),
  /** Whether it has any ImageDigestMirrorSet or ImageContentSourcePolicy. */
  hasMirrorSets: optional(flag()),
  hasArmNodes: optional(flag()),
  /** Whether it serves kinds of the Gateway API. */
  servesGateways: optional(flag()),
  /** The resources whose boot images MachineConfiguration `cluster` manages, or refuses to. */
  managedBootImages: optional(list(text())),
});

/** What of a cluster decides which gates its operators add at run time. A field is absent if it is not known. */
export type GateConditions = Static<typeof gateConditions>;

/** A gate that an operator adds to the ConfigMap `admin-gates`; no payload names it. */
interface RuntimeGate {
  readonly name: string;
  /** What to check before, in our words: the operator writes its own. */
  readonly text: string;
  /** The condition under which the operator adds it, in words after “if”. */
  readonly condition: string;
  /** Whether the operator adds it to a cluster; undefined if that is not known. */
  readonly isAdded: (site: GateConditions) => boolean | undefined;
  /** Whether the condition can come to hold before the update. */
  readonly canCome?: true;
}

/** A gate that operators add, or may add, to a cluster. `holds`: whether its condition is known to hold. */
interface ExpectedGate {
  readonly name: string;
  readonly text: string;
  readonly condition: string;
  readonly holds: boolean;
}

/**
 * The gates that operators add at run time, by the release that adds them (first number of the name). Read in the
 * branches of August 2026: machine-config-operator release-4.18 f313997e0, release-4.20 afed09939 and release-4.21
 * db84d8368; cluster-ingress-operator release-4.18 fa958db6a. The machine config operator of 4.16, 4.17, 4.19, 4.22,
 * 4.23 and 5.0 (d20efd9b9) adds none. An early patch release of a listed minor version adds none either: the gate of
 * 4.20 came in January 2026, that of 4.21 in March 2026.
 */
const runtimeGates: readonly RuntimeGate[] = [
  {
    // vmware-vsphere-csi-driver-operator, pkg/operator/vspherecontroller (CNSMigrationController)
    name: 'ack-4.13-kube-127-cns-migration-in-4.14',
    text: 'Kubernetes 1.27 uses the CSI driver for all volumes of vSphere: vSphere must be recent enough.',
    condition: 'vSphere has volumes of the in-tree driver',
    isAdded: ({ platform }) => (isPlatform(platform, ['VSphere']) === false ? false : undefined),
  },
  {
    // cluster-ingress-operator, pkg/operator/controller/route-upgradeable/controller.go
    name: 'ack-4.15-route-config-not-supported-in-4.16',
    text: 'A route has a configuration that 4.16 does not support: see its condition UnservableInFutureVersions.',
    condition: 'a route has the condition UnservableInFutureVersions',
    isAdded: () => undefined,
  },
  {
    // machine-config-operator, pkg/operator/admin_ack.go (checkAWSGCPBootImageGuard)
    name: 'ack-4.18-boot-image-opt-out-in-4.19',
    text: '4.19 updates the boot images of machine sets, unless MachineConfiguration “cluster” says otherwise.',
    condition: 'the platform is AWS or GCP, and MachineConfiguration “cluster” does not manage boot images',
    isAdded: ({ platform, managedBootImages }) =>
      both(
        isPlatform(platform, ['AWS', 'GCP']),
        managedBootImages === undefined ? undefined : managedBootImages.length === 0,
      ),
  },
  {
    // machine-config-operator, pkg/operator/admin_ack.go (checkAArch64BootImageGuard)
    name: 'ack-4.18-aarch64-bootloader-4.19',
    text: 'The boot images of aarch64 nodes must not be too old: https://access.redhat.com/solutions/7119697.',
    condition: 'a node has the architecture aarch64',
    isAdded: ({ hasArmNodes }) => hasArmNodes,
  },
  {
    // cluster-ingress-operator, pkg/operator/controller/gatewayapi-upgradeable/controller.go
    name: 'ack-4.18-gateway-api-management-in-4.19',
    text: '4.19 manages the CRDs of the Gateway API itself, and prevents other owners.',
    condition: 'the cluster has CRDs of the Gateway API',
    isAdded: ({ servesGateways }) => servesGateways,
  },
  {
    // machine-config-operator, pkg/controller/container-runtime-config/admin_ack.go, and
    // container_runtime_config_controller.go: len(icspRules)+len(idmsRules) > 0, also of other images (PR 5558)
    name: 'ack-4.20-sigstore-in-4.21',
    text: 'Nodes of 4.21 verify the sigstore signature of the release image: its mirrors must have that signature.',
    condition: 'the cluster has mirror sets, also those of mirrors on control plane nodes',
    isAdded: ({ hasMirrorSets }) => hasMirrorSets,
    canCome: true,
  },
  {
    // machine-config-operator, pkg/operator/admin_ack.go (checkAzureVSphereBootImageGuard)
    name: 'ack-4.21-boot-image-opt-out-in-4.22',
    text: '4.22 updates the boot images of machine sets, unless MachineConfiguration “cluster” says otherwise.',
    condition: 'the platform is Azure or vSphere, and MachineConfiguration “cluster” does not manage machine sets',
    isAdded: ({ platform, isAzureStack, managedBootImages }) =>
      both(
        both(isPlatform(platform, ['Azure', 'VSphere']), !(platform === 'Azure' && isAzureStack === true)),
        managedBootImages && !managedBootImages.includes('machinesets'),
      ),
  },
];

/** Lists the gates that the operators of a release add to a cluster, or may add. */
export function listRuntimeGates(version: string, site: GateConditions): ExpectedGate[] {
  return runtimeGates.flatMap(({ name, text, condition, isAdded, canCome }) => {
    const [, minor = ''] = /^ack-(\d+\.\d+)-/.exec(name) ?? [];
    const added = isAdded(site);
    if (!isSameMinor(`${minor}.0`, version) || (added === false && !canCome)) return [];
    return [{ name, text, condition, holds: added === true }];
  });
}

function isPlatform(platform: string | undefined, among: readonly string[]): boolean | undefined {
  return platform === undefined ? undefined : among.includes(platform);
}

/** Joins two conditions, either of which may be unknown. */
function both(one: boolean | undefined, other: boolean | undefined): boolean | undefined {
  if (one === false || other === false) return false;
  return one === undefined || other === undefined ? undefined : true;
}
