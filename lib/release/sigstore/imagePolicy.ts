import { createHash } from 'node:crypto';
import { formatReference, type Reference, parseReference } from '#content/oci';
import { fieldsAt } from '#fields';
import { readTrustRoot, type TrustRoot } from './trustRoot.ts';

/** A policy for signatures of the images in some scopes (config.openshift.io ClusterImagePolicy, ImagePolicy). */
export interface ImagePolicy {
  readonly name: string;
  /** The namespace of the pods that it applies to; undefined for the whole cluster. */
  readonly namespace: string | undefined;
  /** The source of the policy: a file of the payload, or the cluster. */
  readonly source: string;
  /** Registries, repositories or images, as in policy.json: `quay.io/ns/repo`, `*.example.com`. */
  readonly scopes: readonly string[];
  readonly trust: TrustRoot;
  readonly identity: IdentityRule;
  /** Why a cluster with the default feature set does not have this policy of a payload; undefined if it has it. */
  readonly excluded?: string;
}

interface PolicyObject {
  readonly apiVersion?: unknown;
  readonly kind?: unknown;
  readonly metadata?: { readonly name?: unknown; readonly namespace?: unknown };
  readonly spec?: {
    readonly scopes?: unknown;
    readonly policy?: { readonly rootOfTrust?: unknown; readonly signedIdentity?: unknown };
  };
}

/** Returns whether an object is a ClusterImagePolicy or an ImagePolicy of OpenShift. */
export function isImagePolicy(object: unknown): boolean {
  const { apiVersion, kind } = (object ?? {}) as PolicyObject;
  return (
    typeof apiVersion === 'string' &&
    apiVersion.startsWith('config.openshift.io/') &&
    (kind === 'ClusterImagePolicy' || kind === 'ImagePolicy')
  );
}

/**
 * Reads a policy from an object that `isImagePolicy` accepts. Its root of trust is `invalid` if nodes refuse every
 * image by it. Never throws.
 */
export function readImagePolicy(object: unknown, source: string): ImagePolicy {
  const { kind, metadata, spec } = object as PolicyObject;
  const identity = identityRuleOf(spec?.policy?.signedIdentity);
  return {
    name: String(metadata?.name),
    namespace: kind === 'ImagePolicy' ? String(metadata?.namespace) : undefined,
    source,
    scopes: Array.isArray(spec?.scopes) ? spec.scopes.filter((scope) => typeof scope === 'string') : [],
    trust: identity
      ? readTrustRoot(spec?.policy?.rootOfTrust)
      : { kind: 'invalid', reason: 'its signedIdentity is of an unknown kind' },
    identity: identity ?? { kind: 'repository' },
  };
}

/** Returns the SHA-256 of a root of trust in hex: of a key alone in SPKI form. Undefined for an invalid one. */
export function rootFingerprint(trust: TrustRoot): string | undefined {
  if (trust.kind === 'invalid') return undefined;
  if (trust.kind === 'key' && !trust.rekor) return trust.key.fingerprint;
  const text = JSON.stringify(trust, (name, value: unknown) =>
    name === 'key' ? fieldsAt(value)['fingerprint'] : value,
  );
  return createHash('sha256').update(text).digest('hex');
}

/** Returns whether a cluster without feature gates enforces a policy of a payload. */
export function isEnforcedByDefault({ excluded }: ImagePolicy): boolean {
  return excluded === undefined;
}

/**
 * Returns the policies that apply to an image: those with the most specific scope, in the order of
 * containers-policy.json(5): the image, its repository, each parent path, the registry, `*.domain`.
 */
export function policiesFor(image: Reference, policies: readonly ImagePolicy[]): readonly ImagePolicy[] {
  const scope = scopesOf(image).find((candidate) => policies.some(({ scopes }) => scopes.includes(candidate)));
  return scope === undefined ? [] : policies.filter(({ scopes }) => scopes.includes(scope));
}

/** Returns the scopes of policy.json that cover an image, the most specific first. */
export function scopesOf(image: Reference): string[] {
  const { registry, repository } = image;
  const parts = `${registry}/${repository}`.split('/');
  const paths = parts.map((_, index) => parts.slice(0, parts.length - index).join('/'));
  const labels = registry.replace(/:\d+$/, '').split('.');
  const wildcards = labels.slice(1).map((_, index) => `*.${labels.slice(index + 1).join('.')}`);
  return [formatReference(image), ...paths, ...wildcards];
}

/** The rule for the image name in a signature, as containers-policy.json(5) defines `signedIdentity`. */
export type IdentityRule =
  | { readonly kind: 'repo-digest-or-exact' }
  | { readonly kind: 'repository' }
  | { readonly kind: 'exact-repository'; readonly repository: string }
  | { readonly kind: 'remap'; readonly prefix: string; readonly signedPrefix: string };

interface SignedIdentity {
  readonly matchPolicy?: unknown;
  readonly exactRepository?: { readonly repository?: unknown };
  readonly remapIdentity?: { readonly prefix?: unknown; readonly signedPrefix?: unknown };
}

/**
 * Reads `signedIdentity` of a policy (openshift/api, types_image_policy.go); MatchRepoDigestOrExact by default.
 * Undefined for an unknown kind.
 */
function identityRuleOf(value: unknown): IdentityRule | undefined {
  const { matchPolicy = 'MatchRepoDigestOrExact', exactRepository, remapIdentity } = (value ?? {}) as SignedIdentity;
  const repository = exactRepository?.repository;
  const { prefix, signedPrefix } = remapIdentity ?? {};
  switch (matchPolicy) {
    case 'MatchRepoDigestOrExact':
      return { kind: 'repo-digest-or-exact' };
    case 'MatchRepository':
      return { kind: 'repository' };
    case 'ExactRepository':
      return typeof repository === 'string' ? { kind: 'exact-repository', repository } : undefined;
    case 'RemapIdentity':
      return typeof prefix === 'string' && typeof signedPrefix === 'string'
        ? { kind: 'remap', prefix, signedPrefix }
        : undefined;
    default:
      return undefined;
  }
}

/**
 * Returns whether the name in a signature matches an image that is pulled by digest. Compares full names
 * (containers/image, signature/policy_reference_match.go).
 */
export function matchesIdentity(rule: IdentityRule, image: Reference, signed: string): boolean {
  const name = parseName(signed);
  if (!name) return false;
  const intended = `${image.registry}/${image.repository}`;
  switch (rule.kind) {
    case 'repository':
      return name.repository === intended;
    case 'exact-repository':
      return name.repository === parseName(rule.repository)?.repository;
    case 'repo-digest-or-exact':
      return !name.isBare && name.repository === intended;
    case 'remap':
      return !name.isBare && name.repository === remap(intended, rule);
  }
}

function remap(
  name: string,
  { prefix, signedPrefix }: { readonly prefix: string; readonly signedPrefix: string },
): string {
  return name === prefix || name.startsWith(`${prefix}/`) ? signedPrefix + name.slice(prefix.length) : name;
}

function parseName(text: string): { readonly repository: string; readonly isBare: boolean } | undefined {
  try {
    const { registry, repository, tag, digest } = parseReference(text);
    return { repository: `${registry}/${repository}`, isBare: tag === undefined && digest === undefined };
  } catch {
    return undefined;
  }
}
