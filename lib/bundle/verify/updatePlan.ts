import type { KubernetesObject } from '../../config/manifest.ts';
import { largeLimits, readObjects } from '../../config/objects.ts';
import { takeTurn, type Context } from '../../context.ts';
import { isPluginError, messageOf, type PluginError } from '../../errors.ts';
import { parseReference } from '../../oci/reference.ts';
import { readPayloadManifests } from '../../release/release.ts';
import { parseArchitecture, type Architecture } from '../../release/version.ts';
import type { Bundle } from '../bundle.ts';
import { checkSigned } from '../signedBundle.ts';
import type { VerifyTrust } from '../signatureCheck.ts';

/** The requirements of an update with a bundle. */
export interface UpdatePlan {
  /** Of the bundle. */
  readonly path: string;
  readonly version: string;
  readonly arch: Architecture;
  readonly previous: readonly string[];
  /** Every pullspec, by digest. */
  readonly images: readonly string[];
  /** All blobs together, in bytes. */
  readonly size: number;
  /** The objects that the release puts into the cluster and that run something, with the files that they are from. */
  readonly workloads: readonly { readonly file: string; readonly object: KubernetesObject }[];
  /** Why the release in the bundle is not to be trusted; undefined for one that is. */
  readonly distrust: PluginError | undefined;
}

/** Most manifests of a release are definitions and rules of megabytes: those that run nothing are not parsed. */
const runsSomething = /["']?kind["']?\s*:\s*["']?(?:Pod|Deployment|DaemonSet|StatefulSet|ReplicaSet|Job|CronJob)\b/;

/**
 * Reads the requirements of an update from the payload in a bundle, without reading blobs. A missing signature is part
 * of the plan. Throws what opening a release throws.
 */
export async function planUpdate(bundle: Bundle, trust: VerifyTrust, context: Context): Promise<UpdatePlan> {
  const { metadata, content, path } = bundle;
  const distrust = await checkSigned(bundle, trust, context).then(
    () => undefined,
    (error: unknown) => {
      if (isPluginError(error, 'unsigned') || isPluginError(error, 'untrusted')) return error;
      throw error;
    },
  );
  const { digest = '' } = parseReference(metadata.release);
  const files = await readPayloadManifests(content, await content.resolve(digest), context);
  const { version, arch, previous, images, blobs } = metadata;
  const workloads: UpdatePlan['workloads'][number][] = [];
  for (const [file, bytes] of files) {
    workloads.push(...readWorkloads(file, bytes.toString(), context));
    await takeTurn(context.signal);
  }
  return {
    ...{ path, version, arch: parseArchitecture(arch), previous, images },
    size: blobs.reduce((sum, { size }) => sum + size, 0),
    workloads,
    distrust,
  };
}

function readWorkloads(file: string, text: string, context: Context): UpdatePlan['workloads'] {
  if (!/\.(?:ya?ml|json)$/.test(file) || !runsSomething.test(text)) return [];
  try {
    return readObjects(text, file, largeLimits)
      .filter(isObject)
      .filter(isForClusters)
      .map((object) => ({ file, object }));
  } catch (error) {
    context.log('warn', `${messageOf(error)}, and is left out`);
    return [];
  }
}

function isObject(object: Readonly<Record<string, unknown>>): object is KubernetesObject {
  const { kind, apiVersion, metadata } = object;
  const { name } = (metadata ?? {}) as { name?: unknown };
  return typeof kind === 'string' && typeof apiVersion === 'string' && typeof name === 'string';
}

const profile = 'include.release.openshift.io/';

/** The version operator leaves out what is for other kinds of clusters, and removes what is marked so. */
function isForClusters({ metadata: { annotations } }: KubernetesObject): boolean {
  const marks = annotations ?? {};
  if (marks['release.openshift.io/delete'] === 'true') return false;
  const profiles = Object.keys(marks).filter((mark) => mark.startsWith(profile));
  return profiles.length === 0 || marks[`${profile}self-managed-high-availability`] === 'true';
}
