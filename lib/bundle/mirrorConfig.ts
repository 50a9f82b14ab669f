import { dirname } from 'node:path/posix';
import { fieldsOf } from '../fields.ts';
import { registryAuthorityConfigMap, registryAuthorityPath } from '../config/certificateAuthority.ts';
import { formatManifest, type ConfigManifest } from '../config/manifest.ts';
import {
  mirrorSetManifest,
  sharedMirrorSetManifest,
  type MirroredSource,
  type MirrorSetKind,
} from '../config/mirrorSets.ts';
import type { UnknownObject } from '../config/objects.ts';
import { updateServiceManifests } from '../config/updateService.ts';
import { isPluginError } from '../errors.ts';
import { parseReference, parseRepository } from '../content/oci/reference.ts';
import type { ConfigFile } from './bundledConfig.ts';
import { describeProblem, type Problem } from './problem.ts';

/** A manifest that names registries, which no signature covers. */
export interface MirrorManifest {
  readonly manifest: ConfigManifest;
  /** The host and port of each registry. */
  readonly registries: readonly string[];
}

const setKinds: Readonly<Record<string, { kind: MirrorSetKind | 'itms'; field: string }>> = {
  imagedigestmirrorset: { kind: 'idms', field: 'imageDigestMirrors' },
  imagetagmirrorset: { kind: 'itms', field: 'imageTagMirrors' },
  imagecontentsourcepolicy: { kind: 'icsp', field: 'repositoryDigestMirrors' },
};
const setPath = /^config\/mirrors\/([a-z]+)(-[0-9a-f]{8})?\.yaml$/;
const servicePath = 'config/update-service/updateservice.yaml';

/**
 * Checks the files that mirroring writes in addition to signatures: a mirror set for repositories of the release, an
 * update service, and the CAs of its registries. Each is rebuilt from its own fields, and must be equal byte for byte.
 * `repositories` are those of the release and of the images beside it; a name that ends with a slash includes all repositories below it.
 */
export function judgeMirrorFiles(
  files: readonly ConfigFile[],
  repositories: ReadonlySet<string>,
): { manifests: MirrorManifest[]; problems: Problem[] } {
  const manifests: MirrorManifest[] = [];
  const problems: Problem[] = [];
  // The CAs are those of the registries in the other files, so their file comes last.
  const sorted = files.toSorted(
    (a, b) => Number(a.path === registryAuthorityPath) - Number(b.path === registryAuthorityPath),
  );
  for (const { path, text, objects } of sorted) {
    const rebuilt = rebuild(path, objects, repositories, manifests);
    if (typeof rebuilt === 'object' && formatManifest(rebuilt.manifest.object) === text) manifests.push(rebuilt);
    else {
      const why = typeof rebuilt === 'string' ? rebuilt : 'differs from what mirroring writes';
      problems.push(describeProblem('unexpected', 'file', path, `${path} ${why}: it cannot be verified`));
    }
  }
  return { manifests, problems };
}

/**
 * Rebuilds a manifest from the fields of another one. Returns a reason if mirroring of this release does not write such
 * a manifest.
 */
function rebuild(
  path: string,
  [object, second]: readonly UnknownObject[],
  repositories: ReadonlySet<string>,
  earlier: readonly MirrorManifest[],
): MirrorManifest | string {
  const set = setKinds[setPath.exec(path)?.[1] ?? ''];
  if (!object || second || (!set && path !== servicePath && path !== registryAuthorityPath))
    return 'is not written by mirroring';
  try {
    if (set) return rebuildSet(path, set, object, repositories);
    return path === servicePath ? rebuildService(object) : rebuildAuthority(object, earlier);
  } catch (error) {
    if (!isPluginError(error)) throw error;
    return `is malformed (${error.message})`;
  }
}

function rebuildSet(
  path: string,
  { kind, field }: { kind: MirrorSetKind | 'itms'; field: string },
  { spec }: UnknownObject,
  repositories: ReadonlySet<string>,
): MirrorManifest | string {
  const entries = fieldsOf(spec)[field];
  if (!Array.isArray(entries) || entries.length === 0) return 'has no sources';
  const sources = entries.map((entry): MirroredSource => {
    const { source, mirrors } = fieldsOf(entry);
    return { source: String(source), mirrors: Array.isArray(mirrors) ? mirrors.map(String) : [] };
  });
  const foreign = sources.find(({ source }) => !repositories.has(source) && !repositories.has(`${dirname(source)}/`));
  if (foreign) return `is for ${foreign.source.slice(0, 200)}, which is not a repository of this release`;
  const registries = sources.flatMap(({ mirrors }) => mirrors.map((mirror) => parseRepository(mirror).registry));
  // Earlier versions had one name for all mirror sets.
  const shared = kind === 'itms' ? [] : [sharedMirrorSetManifest(kind, sources)];
  const manifests = [mirrorSetManifest(kind, sources), ...shared];
  const manifest = manifests.find((each) => each.path === path);
  return manifest ? { manifest, registries: [...new Set(registries)] } : 'has another name than its content';
}

function rebuildService({ spec }: UnknownObject): MirrorManifest | string {
  const { releases, graphDataImage } = fieldsOf(spec);
  const options = { releases: String(releases), graphDataImage: String(graphDataImage) };
  const [manifest] = updateServiceManifests(options);
  if (!manifest) return 'is not written by mirroring';
  const places = [parseRepository(options.releases), parseReference(options.graphDataImage)];
  return { manifest, registries: [...new Set(places.map(({ registry }) => registry))] };
}

function rebuildAuthority({ data }: UnknownObject, earlier: readonly MirrorManifest[]): MirrorManifest | string {
  const service = earlier.find(({ manifest }) => manifest.path === servicePath);
  if (!service) return `belongs to no ${servicePath}`;
  const [certificates] = Object.values(fieldsOf(data));
  const manifest = registryAuthorityConfigMap({ certificates: String(certificates), registries: service.registries });
  return { manifest, registries: service.registries };
}
