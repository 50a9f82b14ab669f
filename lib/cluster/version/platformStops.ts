import type { Weight } from '../finding.ts';

/** Why the platform itself stops at something, and where its source says so. */
export interface PlatformStop {
  /** The sentence of the finding, which names the component that stops. */
  readonly because: string;
  readonly source: string;
}

const versionOperator = 'openshift/cluster-version-operator';
const configOperator = 'openshift/machine-config-operator';

/**
 * The places where the platform certainly stops: each blocker of preflight and of the controller has one.
 * docs/how-to/check-a-cluster.md lists them. A check without such a sentence only warns.
 */
export const platformStops = {
  unseen: stop('What the user may not see cannot be checked, so nothing is known about it.', 'this program'),
  hosted: stop(
    'A hosted control plane has no machine config operator: its nodes are updated by a controller in another cluster.',
    'openshift/hypershift, control-plane-operator',
  ),
  untrusted: stop(
    'The version operator and the agents run only a release that a trusted key has signed.',
    `${versionOperator}, pkg/cvo/updatepayload.go`,
  ),
  path: stop(
    'The release was tested from the versions that it names only, and the version operator never returns to an ' +
      'earlier minor version.',
    `${versionOperator}, pkg/payload/precondition/clusterversion/rollback.go`,
  ),
  failing: stop(
    'The version operator applies the manifests of a release in their order, and waits for each that fails.',
    `${versionOperator}, pkg/payload/task_graph.go`,
  ),
  underWay: stop(
    'The version operator follows one request at a time: another one replaces it, and the update that an ' +
      'administrator asked for is lost.',
    `${versionOperator}, pkg/cvo/sync_worker.go`,
  ),
  upgradeable: stop(
    'The version operator refuses an update to another minor version while Upgradeable is False.',
    `${versionOperator}, pkg/payload/precondition/clusterversion/upgradeable.go`,
  ),
  operator: stop(
    'The version operator waits at each ClusterOperator until it is available and not degraded.',
    `${versionOperator}, pkg/cvo/internal/operatorstatus.go`,
  ),
  systemFromRegistry: stop(
    'The machine config daemon of releases before 4.19.12 pulls the operating system from a registry, even if ' +
      'the node has its image.',
    `${configOperator}, pkg/daemon/update.go`,
  ),
  streams: stop(
    'machine-config-controller renders nothing until it has read the operating system streams of its release.',
    `${configOperator}, cmd/machine-config-controller/start.go`,
  ),
  quorum: stop(
    'The guard of etcd lets no control plane node be drained while its quorum depends on it.',
    'openshift/cluster-etcd-operator, pkg/operator/starter.go (guard pods)',
  ),
  degradedPool: stop(
    'The machine config operator waits while any pool is degraded, and the version operator waits for it.',
    `${configOperator}, pkg/operator/sync.go (syncRequiredMachineConfigPools)`,
  ),
  runc: stop(
    'machine-config-controller of 4.23 and later renders no configuration for a pool of RHEL 10 with runc, ' +
      'which is then degraded.',
    `${configOperator}, pkg/controller/render/render_controller.go (validateNoRuncOnRHEL10FromOSImageStream)`,
  ),
  pausedPool: stop(
    'The machine config operator waits for the pool of the control plane, which is not updated while it is paused.',
    `${configOperator}, pkg/operator/sync.go (syncRequiredMachineConfigPools)`,
  ),
  nodeDown: stop(
    'A node that is not ready counts as unavailable: its pool is never updated completely, and by default ' +
      'updates no other node.',
    `${configOperator}, pkg/controller/node/node_controller.go (getAllCandidateMachines)`,
  ),
  diskPressure: stop(
    'The kubelet evicts pods and removes unused images until the pressure ends.',
    'kubernetes, pkg/kubelet/eviction/eviction_manager.go',
  ),
  architecture: stop(
    'A node cannot run images of another architecture, and the bundle has no others.',
    'opencontainers/image-spec, image index',
  ),
  kubeletSkew: stop(
    'The API server does not support kubelets that are older by more than three minor versions.',
    'kubernetes, version skew policy; openshift/cluster-kube-apiserver-operator, ' +
      'pkg/operator/kubeletversionskewcontroller',
  ),
  kubeletCertificate: stop(
    'The API server refuses a kubelet whose certificate has expired, so its node cannot be updated.',
    'kubernetes, pkg/kubelet/certificate/kubelet.go',
  ),
  certificate: stop(
    'A component of the control plane that loads an expired certificate is refused by all others.',
    'openshift/library-go, pkg/operator/certrotation',
  ),
  drain: stop(
    'The machine config operator drains a node before it updates it, and repeats a refused eviction without end.',
    `${configOperator}, pkg/controller/drain/drain_controller.go`,
  ),
  severalBudgets: stop(
    'The API server evicts no pod that has more than one PodDisruptionBudget.',
    'kubernetes, pkg/registry/core/pod/storage/eviction.go',
  ),
  migration: stop(
    'KubeVirt refuses to evict a machine that must be migrated and cannot be.',
    'kubevirt/kubevirt, pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go',
  ),
  webhook: stop(
    'The API server refuses each write that a webhook with failurePolicy Fail must judge and cannot.',
    'kubernetes, staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook',
  ),
  rewrittenImage: stop(
    'Nodes have the images under their own names only, and the kubelet pulls any other name.',
    'kubernetes, pkg/kubelet/images/image_manager.go',
  ),
  space: stop(
    'Agents load no image below the space that must stay free, and the machine config operator pins none.',
    `${configOperator}, pkg/daemon/pinned_image_set.go`,
  ),
  missingBase: stop(
    'The bundle leaves out blobs that the node does not have either, so its images cannot be completed.',
    'this program (docs/tar-format.md)',
  ),
  missingImage: stop(
    'A pod of the release that cannot pull its image does not start, and the version operator waits for its operator.',
    'kubernetes, pkg/kubelet/images/image_manager.go',
  ),
  unverifiedImage: stop(
    'The kubelet asks a registry for an image that is present, if its policy requires a record that it has ' +
      'pulled the image.',
    'kubernetes, pkg/kubelet/images/pullmanager/image_pull_manager.go (MustAttemptImagePull)',
  ),
  mirror: stop(
    'The mirrors cannot serve, so the nodes that depend on them pull nothing.',
    'this program (docs/how-to/nodes-without-a-registry.md)',
  ),
  signature: stop(
    'The container runtime refuses images that its signature policy rejects.',
    'containers/image, signature/policy_eval.go',
  ),
} as const satisfies Record<string, PlatformStop>;

/** Returns the weight of a blocker: the platform stops there. */
export function blocks(name: keyof typeof platformStops): Weight & { readonly severity: 'blocker' } {
  return { severity: 'blocker', because: platformStops[name].because };
}

function stop(because: string, source: string): PlatformStop {
  return { because, source };
}
