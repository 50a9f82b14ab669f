import type { AdminGate } from '../release/adminGates.ts';
import type { GateConditions } from '../release/runtimeGates.ts';

/** An operator that OLM installed at a site. */
export interface SiteOperator {
  /** The name of its package. */
  readonly name: string;
  readonly channel: string;
  /** The installed version. */
  readonly version: string;
  /** The name of the CatalogSource. */
  readonly catalog: string;
  /** The last minor version of OpenShift that it supports (`olm.maxOpenShiftVersion`), if it names one. */
  readonly maxOpenShiftVersion?: string;
}

/** A node of a site. Sizes are in bytes, for images. */
export interface SiteNode {
  readonly name: string;
  readonly architecture: string;
  readonly capacity?: number;
  readonly free?: number;
  /** The name and version of its operating system. */
  readonly os?: string;
}

/** A machine config pool of a site. */
export interface SitePool {
  readonly name: string;
  readonly machines: number;
  readonly paused: boolean;
  /** The stream of its operating system (`osImageStream`), if it names one. */
  readonly osStream?: string;
}

/** An API that a later version of Kubernetes removes, and that clients of a site used within a day. */
export interface SiteApi {
  /** Such as `flowschemas.v1beta3.flowcontrol.apiserver.k8s.io`. */
  readonly name: string;
  /** The minor version of Kubernetes without it: `1.32`. */
  readonly removedIn: string;
  /** The names of its users, at most ten. */
  readonly users: readonly string[];
}

/** The facts about a site that `create` needs to plan a bundle for it. It has no secrets. */
export interface SiteReport {
  readonly formatVersion: 1;
  /** The time of the report (RFC 3339). */
  readonly created: string;
  readonly tool: string;
  /** The running version, its architecture as in the tag of a release, and its update channel. */
  readonly version: string;
  readonly arch: string;
  readonly channel: string;
  /** The ID of the cluster; absent in reports of earlier versions of this program, and in the text form. */
  readonly cluster?: string;
  /** The public key with which the installation signs its reports, in PEM form; absent if it signs none. */
  readonly reportKey?: string;
  /** The releases of the cluster, the latest first. Times are of RFC 3339. */
  readonly history: readonly {
    readonly version: string;
    readonly state: string;
    readonly image?: string;
    readonly started?: string;
    readonly completed?: string;
  }[];
  readonly nodes: readonly SiteNode[];
  /** The fields below are absent in reports of earlier versions of this program, and in the text form. */
  readonly pools?: readonly SitePool[];
  /** The feature set of the cluster, and single feature gates that it changes. */
  readonly featureGates?: {
    readonly featureSet: string;
    readonly enabled: readonly string[];
    readonly disabled: readonly string[];
  };
  /** The image policies of the cluster, with the SHA-256 of their roots of trust, or the reason why nodes refuse all images. */
  readonly policies?: readonly {
    readonly name: string;
    readonly namespace?: string;
    readonly scopes: readonly string[];
    readonly key?: string;
    readonly unsupported?: string;
  }[];
  /** The images that each node has: SHA-256 digests in hex, by their repositories. */
  readonly heldImages?: Readonly<Record<string, readonly string[]>>;
  /** The images of workloads that are not from the repositories of the release. */
  readonly otherImages?: readonly string[];
  /** The acknowledgements that the running release requires before another minor version, and that were not given. */
  readonly acknowledgements?: readonly AdminGate[];
  /** What decides which acknowledgements operators require at run time; a field is absent if it is not known. */
  readonly gateConditions?: Partial<GateConditions>;
  /** The APIs in use that a later version of Kubernetes removes. */
  readonly removedApis?: readonly SiteApi[];
  readonly operators: readonly SiteOperator[];
  /** The blockers and warnings of preflight. */
  readonly findings: readonly { readonly severity: string; readonly object: string; readonly message: string }[];
}
