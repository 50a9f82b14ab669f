import type { KubernetesObject } from '../../config/manifest.ts';
import { largeLimits, readObjects } from '../../config/objects.ts';
import { takeTurn, type Context } from '../../context.ts';
import { isPluginError, messageOf, type PluginError } from '../../errors.ts';
import { parseReference } from '../../oci/reference.ts';
import { readPayloadManifests } from '../../release/release.ts';
import { parseArchitecture, type Architecture } from '../../release/version.ts';
import type { Bundle } from '../bundle.ts';
import { sumSizes } from '../metadata.ts';
import { checkSigned } from '../signedBundle.ts';
import type { VerifyTrust } from '../signatureCheck.ts';

/** The requirements of an update with a bundle. */
export interface UpdatePlan {
  /** The path of the bundle. */
  readonly path: string;
  readonly version: string;
  readonly arch: Architecture;
  readonly previous: readonly string[];
  /** The pullspecs of all images, by digest. */
  readonly images: readonly string[];
  /** The size of all blobs, in bytes. */
  readonly size: number;
  /** The objects of the release that run pods, with the names of their files. */
  readonly workloads: readonly { readonly file: string; readonly object: KubernetesObject }[];
  /** The reason why the release in the bundle is not trusted; undefined if it is trusted. */
  readonly distrust: PluginError | undefined;
}

/**
 * Matches manifests that run pods. Most manifests of a release are definitions and rules of megabytes, and are not
 * parsed.
 */
const runsSomething = /["']?kind["']?\s*:\s*["']?(?:Pod|Deployment|DaemonSet|StatefulSet|ReplicaSet|Job|CronJob)\b/;

/**
 * Reads the requirements of an update from the payload in a bundle, without reading blobs. Records a missing signature
 * in the plan. Throws the errors of opening a release.
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
    size: sumSizes(blobs),
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

/**
 * Returns whether the version operator applies an object to clusters of this kind. It skips objects of other cluster
 * profiles, and deletes marked objects.
 */
function isForClusters({ metadata: { annotations } }: KubernetesObject): boolean {
  const marks = annotations ?? {};
  if (marks['release.openshift.io/delete'] === 'true') return false;
  const profiles = Object.keys(marks).filter((mark) => mark.startsWith(profile));
  return profiles.length === 0 || marks[`${profile}self-managed-high-availability`] === 'true';
}
