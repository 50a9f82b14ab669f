import { parseReference, type Reference } from '../../content/oci/reference.ts';

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
export function identityRuleOf(value: unknown): IdentityRule | undefined {
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
