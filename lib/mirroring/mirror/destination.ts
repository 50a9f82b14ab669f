import { resolve, join } from 'node:path';
import { describeWriteError, makeFolders, takeLock } from '#content/files';
import { type Digest, formatReference, isRepository, isTag, parseReference, type Reference } from '#content/oci';
import { releaseRepository, directoryLock, type ContentSource, type ImageGraph } from '#content/store';
import { isPluginError, PluginError } from '#errors';
import type { Release } from '#release/release';
import {
  architectures,
  componentTag,
  isVersion,
  parseReleaseTag,
  releaseTag,
  type Architecture,
} from '#release/version';

/** A repository, in a registry or in a mirror directory (`root` is absolute). */
export type Place =
  | { readonly kind: 'registry'; readonly registry: string; readonly repository: string }
  | { readonly kind: 'directory'; readonly root: string; readonly repository: string };

/** The destination of an image, and its tag there; without a tag it can only be found by digest. */
export interface Target {
  readonly place: Place;
  readonly tag?: string;
}

/** The name of the release image among the names of its components. */
export const releaseName = 'release';

/** Returns the destination of an image of a release, by the component’s name or `releaseName`. */
export type Destination = (name: string, release: Pick<Release, 'version' | 'arch'>) => Target;

/** The destination of a release, as the user wrote it. */
interface DestinationRequest {
  /** A repository, or `file://` with a repository in `toDir`. It may contain `${component}` and `${version}`. */
  readonly to?: string;
  readonly toDir?: string;
  /** The destination of the release image, with its tag. It may contain `${version}`. */
  readonly toReleaseImage?: string;
}

const component = '${component}';
const version = '${version}';

/**
 * Parses the destination of a release as `oc adm release mirror` does. All images go into one repository, with the tags
 * `<version>-<arch>` and `<version>-<arch>-<component>`. With `${component}` each image has its own tag or repository;
 * the architecture is appended to a tag in the template. Throws `usage` for an invalid destination, before any request.
 */
export function parseDestination(request: DestinationRequest): Destination {
  const { toDir = '.', toReleaseImage } = request;
  const to = request.to ?? `file://${releaseRepository}`;
  const targetOfRelease = (versionText: string): Target | undefined =>
    toReleaseImage === undefined
      ? undefined
      : parseTarget('release image', fillIn(toReleaseImage, releaseName, versionText), toDir, toReleaseImage);
  targetOfRelease('4.12.4');
  const isTemplate = to.includes(component);
  const { tag } = parseTarget('destination', fillIn(to, 'etcd', '4.12.4'), toDir, to);
  if (tag !== undefined && !isTemplate) {
    throw new PluginError('usage', `destination ${to} has a tag, but each image needs its own`, {
      hint:
        'Give a repository without a tag, or a template such ' +
        `as ${to.slice(0, to.lastIndexOf(':'))}:\${version}-\${component}.`,
    });
  }
  return (name, release) => {
    const single = name === releaseName ? targetOfRelease(release.version) : undefined;
    if (single) return single;
    const target = parseTarget('destination', fillIn(to, name, release.version), toDir);
    if (target.tag !== undefined) return { ...target, tag: `${target.tag}-${release.arch}` };
    const isAlone = isTemplate || name === releaseName;
    const own = isAlone ? releaseTag(release.version, release.arch) : componentTag(release.version, release.arch, name);
    return { ...target, tag: own };
  };
}

/**
 * Returns the release whose image of a name has a tag at its destination; undefined for any other tag. A release image
 * without the version in its tag is found by its usual tag.
 */
export function releaseOfTag(
  tag: string,
  name: string,
  destination: Destination,
): { version: string; arch: Architecture } | undefined {
  const usual = name === releaseName ? parseReleaseTag(tag) : undefined;
  if (usual && (destination(name, usual).tag ?? tag) === tag) return usual;
  const placeholder = '0.0.0';
  for (const arch of architectures) {
    const { tag: template = '' } = destination(name, { version: placeholder, arch });
    const [head = '', tail] = template.split(placeholder);
    if (tail === undefined) return usual;
    const version = tag.slice(head.length, tag.length - tail.length);
    if (isVersion(version) && destination(name, { version, arch }).tag === tag) return { version, arch };
  }
  return undefined;
}

/** Formats a target as a pullspec, with the prefix `file://` for a directory; by digest if one is given. */
export function formatTarget({ place, tag }: Target, digest?: Digest): string {
  const suffix = digest !== undefined ? `@${digest}` : tag !== undefined ? `:${tag}` : '';
  return formatPlace(place) + suffix;
}

/** Formats a repository: `registry/repository`, or `file://repository`, without the directory, as `oc` does. */
export function formatPlace(place: Place): string {
  return place.kind === 'registry' ? formatReference(place) : `file://${place.repository}`;
}

function fillIn(template: string, name: string, versionText: string): string {
  return template.replaceAll(component, name).replaceAll(version, versionText);
}

/** Parses one target. `shown` is the text of the user. */
function parseTarget(option: string, text: string, toDir: string, shown = text): Target {
  const scheme = /^([a-z0-9]+):\/\//.exec(text)?.[1];
  if (scheme !== undefined && scheme !== 'file' && scheme !== 'docker') {
    throw new PluginError('usage', `${option} ${shown}: ${scheme}:// is not a place that images can be written to`, {
      hint: 'Give REGISTRY/REPOSITORY, or file://REPOSITORY.',
    });
  }
  if (scheme === 'file') {
    const { repository, tag } = splitTag(text.slice('file://'.length).replace(/^\//, ''));
    if (!isRepository(repository) || (tag !== undefined && !isTag(tag))) {
      throw new PluginError('usage', `${option} ${shown} cannot be a repository in a directory`, {
        hint: 'It is file:// and a relative path in lower case. The directory is given separately.',
        settings: ['toDir'],
      });
    }
    return { place: { kind: 'directory', root: resolve(toDir), repository }, tag };
  }
  const named = text.replace(/^docker:\/\//, '');
  if (!named.includes('/')) {
    const lacks = /[.:]|^localhost$/.test(named)
      ? `it lacks the repository: ${named}/REPOSITORY`
      : 'it names no registry';
    throw invalid(option, shown, lacks);
  }
  try {
    const { registry, repository, tag, digest } = parseReference(named);
    if (digest !== undefined) throw invalid(option, shown, 'it has a digest, and images keep those they have');
    return { place: { kind: 'registry', registry, repository }, tag };
  } catch (error) {
    throw isPluginError(error, 'invalid-reference') ? invalid(option, shown, error.message, error) : error;
  }
}

function splitTag(text: string): { repository: string; tag?: string } {
  const colon = text.lastIndexOf(':');
  return colon > text.lastIndexOf('/')
    ? { repository: text.slice(0, colon), tag: text.slice(colon + 1) }
    : { repository: text };
}

function invalid(option: string, text: string, why: string, cause?: unknown): PluginError {
  return new PluginError('usage', `${option} ${text} cannot be used: ${why}`, {
    hint: 'Give a registry and a repository, such as registry.example.com:5000/openshift/release.',
    cause,
  });
}

/**
 * Runs an action while no other run of this program writes to some mirror directories. Creates missing directories.
 * Throws `busy`, `not-writable`, `disk-full`, and the errors of the action.
 */
export async function whileLocked<R>(roots: readonly string[], action: () => Promise<R>): Promise<R> {
  const [root, ...others] = new Set(roots);
  if (root === undefined) return action();
  await makeFolders(root).catch((error: unknown) => {
    throw describeWriteError(error, root);
  });
  await using _lock = await takeLock(join(root, directoryLock), `the mirror directory ${root}`);
  return await whileLocked(others, action);
}

/** An image to mirror. */
export interface MirrorImage {
  readonly name: string;
  readonly digest: Digest;
  readonly source: ContentSource;
  /** The source in a registry; undefined for another source. */
  readonly reference?: Reference;
  readonly target: Target;
  /** Whether it is a release image, which is copied after all others. */
  readonly isRelease?: boolean;
}

/** The images for one repository. Everything except their blobs has been read. */
export interface MirrorGroup {
  readonly place: Place;
  readonly images: readonly { readonly image: MirrorImage; readonly graph: ImageGraph }[];
}
