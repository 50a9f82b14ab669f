import { isSameMinor } from './version.ts';

/** What of a cluster decides which gates its operators add at run time. Undefined: not known. */
export interface GateConditions {
  /** The type of its platform (Infrastructure `cluster`), such as `VSphere`. */
  readonly platform: string | undefined;
  /** Whether its platform is Azure Stack Hub. */
  readonly isAzureStack: boolean | undefined;
  /** Whether it has any ImageDigestMirrorSet or ImageContentSourcePolicy. */
  readonly hasMirrorSets: boolean | undefined;
  readonly hasArmNodes: boolean | undefined;
  /** Whether it serves kinds of the Gateway API. */
  readonly servesGateways: boolean | undefined;
  /** The resources whose boot images MachineConfiguration `cluster` manages, or refuses to. */
  readonly managedBootImages: readonly string[] | undefined;
}

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
export interface ExpectedGate {
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
export const runtimeGates: readonly RuntimeGate[] = [
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
