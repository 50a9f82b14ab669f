import { createHash } from 'node:crypto';
import { PluginError } from '#errors';

/** A parsed image reference: `registry/repository:tag@digest`. */
export interface Reference {
  /** The host, with its port if one is given: `quay.io`, `localhost:5000`, `[::1]:5000`. */
  readonly registry: string;
  readonly repository: string;
  readonly tag?: string;
  readonly digest?: Digest;
}

// distribution/reference: path components may have single separators, double underscores and runs of dashes.
const component = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/;
const tagPattern = /^\w[\w.-]{0,127}$/;
const host = /^(?:\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?)(?::[0-9]{1,5})?$/;

/**
 * Parses an image reference. A first part without a dot, a port or the name `localhost` is a repository of docker.io,
 * as in other tools. Throws `invalid-reference`.
 */
export function parseReference(text: string): Reference {
  const at = text.indexOf('@');
  const digest = at < 0 ? undefined : text.slice(at + 1);
  const named = at < 0 ? text : text.slice(0, at);
  const colon = named.lastIndexOf(':');
  const tag = colon > named.lastIndexOf('/') && !named.endsWith(']') ? named.slice(colon + 1) : undefined;
  const { registry, repository } = parseRepository(tag === undefined ? named : named.slice(0, colon), text);
  if (digest !== undefined && !isDigest(digest)) throw malformed(text, 'its digest is not sha256 and 64 hex digits');
  if (tag !== undefined && !tagPattern.test(tag)) throw malformed(text, `“${tag}” cannot be a tag`);
  return { registry, repository, tag, digest };
}

/** Returns whether a text has the form of a tag, which has at most 128 characters. */
export function isTag(text: string): boolean {
  return tagPattern.test(text);
}

/** Returns whether a text is a valid name of a repository in its registry. */
export function isRepository(text: string): boolean {
  return text.length <= 255 && text.split('/').every((part) => component.test(part));
}

/** Parses `registry/repository` without a tag or a digest. Throws `invalid-reference` with `whole` if it is given. */
export function parseRepository(text: string, whole: string = text): Pick<Reference, 'registry' | 'repository'> {
  const slash = text.indexOf('/');
  const first = slash < 0 ? '' : text.slice(0, slash);
  const named = first === 'localhost' || /[.:]/.test(first);
  // distribution/reference: the former name of Docker Hub, and its official images.
  const registry = named && first !== 'index.docker.io' ? first : 'docker.io';
  let repository = named ? text.slice(slash + 1) : text;
  if (registry === 'docker.io' && !repository.includes('/')) repository = `library/${repository}`;
  if (!host.test(registry)) throw malformed(whole, `“${registry}” cannot be a host`);
  if (!isRepository(repository)) {
    const isUpper = isRepository(repository.toLowerCase());
    const why = isUpper ? `, because names of repositories are in lower case` : '';
    throw malformed(whole, `“${repository.slice(0, 100)}” cannot be a repository${why}`);
  }
  return { registry, repository };
}

/**
 * Returns the part of a pullspec after the `@`, or the whole pullspec without an `@`. Does not check that it is a
 * digest.
 */
export function digestIn(pullspec: string): string {
  return pullspec.slice(pullspec.indexOf('@') + 1);
}

/** Returns the part of a pullspec before the `@`: registry and repository. */
export function repositoryIn(pullspec: string): string {
  return pullspec.split('@', 1)[0] ?? pullspec;
}

/** Formats a reference. Keeps both a tag and a digest. */
export function formatReference(reference: Reference): string {
  const { registry, repository, tag, digest } = reference;
  return `${registry}/${repository}${tag === undefined ? '' : `:${tag}`}${digest === undefined ? '' : `@${digest}`}`;
}

function malformed(text: string, why: string): PluginError {
  return new PluginError('invalid-reference', `“${text.slice(0, 200)}” is not an image reference: ${why}`, {
    hint: 'References look like quay.io/openshift-release-dev/ocp-release:4.12.4-x86_64 or …@sha256:<64 hex digits>.',
  });
}

/** A content digest in the form `sha256:<64 lower-case hex digits>` (OCI image-spec, descriptor.md). */
export type Digest = `sha256:${string}`;

const pattern = /^sha256:[0-9a-f]{64}$/;

/** Returns whether a text is a well-formed sha256 digest. */
export function isDigest(text: string): text is Digest {
  return pattern.test(text);
}

/** Parses a digest. Throws `invalid-reference` unless it is `sha256:` and 64 lower-case hex digits. */
export function parseDigest(text: string): Digest {
  if (!isDigest(text)) throw new PluginError('invalid-reference', `“${text.slice(0, 100)}” is not a sha256 digest`);
  return text;
}

/** Returns the digest of some bytes in memory. */
export function digestOf(bytes: Uint8Array | string): Digest {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

/** Returns the hex digits of a digest, without `sha256:`. */
export function hexOf(digest: Digest): string {
  return digest.slice('sha256:'.length);
}
