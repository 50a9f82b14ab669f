import type { Exchange } from '../http/faultyServer.ts';
import { basicAuthorization } from '../registry/tokenServer.ts';
import { type Place, qualified } from './apiObjects.ts';
import { Refusal } from './apiStatus.ts';

/** A request, for authorization. */
export interface Attempt {
  readonly user: string;
  readonly groups: readonly string[];
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly namespace: string;
  readonly name: string;
}

/** The users and their rights. Without `tokens`, `passwords` and client certificates, every request is allowed. */
export interface AccessOptions {
  /** Users by bearer token. Tests may change the map later. */
  readonly tokens?: Map<string, string>;
  /** Passwords by user, for basic authorization. */
  readonly passwords?: Map<string, string>;
  /** Returns additional claims of a token, such as the node of its pod. */
  readonly claims?: (token: string) => Readonly<Record<string, readonly string[]>>;
  /** Returns whether a request is allowed; by default all are. */
  readonly allow?: (attempt: Attempt) => boolean;
}

/** A user who has logged in, or an impersonated user. */
export interface ApiUser {
  readonly name: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

/** Authentication (401) and authorization (403) of an API server. */
export class ApiAccess {
  readonly #options: AccessOptions;
  readonly #certificates: boolean;

  /** `certificates`: whether clients may log in with a certificate. */
  constructor(options: AccessOptions, certificates: boolean) {
    this.#options = options;
    this.#certificates = certificates;
  }

  /** Returns the user of a request, or the impersonated user. */
  authenticate({ headers, client }: Exchange): ApiUser {
    const { tokens, passwords } = this.#options;
    const user = this.#userOf(headers.authorization, client);
    if (user === undefined) {
      const open = !tokens && !passwords && !this.#certificates && headers.authorization === undefined;
      if (open) return actingAs('nobody', headers);
      throw new Refusal(401, 'Unauthorized', 'Unauthorized');
    }
    const token = bearerOf(headers.authorization);
    const extra = token === undefined ? undefined : this.#options.claims?.(token);
    const acting = { ...actingAs(user, headers), ...(extra && { extra }) };
    if (acting.name !== user) {
      const place = { group: '', resource: 'users', namespace: '', name: acting.name };
      this.#check({ user, groups: [], verb: 'impersonate', ...place });
    }
    return acting;
  }

  /** Refuses a request without the right for it. */
  authorize(user: ApiUser, verb: Attempt['verb'], { kind, namespace, name }: Place): void {
    const { group, resource } = kind;
    this.#check({ user: user.name, groups: user.groups, verb, group, resource, namespace, name });
  }

  /** Returns whether a user may do something. */
  allows({ name: user, groups }: ApiUser, attempt: Omit<Attempt, 'user' | 'groups'>): boolean {
    return this.#options.allow?.({ ...attempt, user, groups }) ?? true;
  }

  /** Responds to a SelfSubjectAccessReview: whether a user may do what its `resourceAttributes` describe. */
  review(
    user: ApiUser,
    { subresource = '', ...attributes }: Partial<Attempt> & { subresource?: string },
  ): { allowed: boolean } {
    // A rule for everything allows everything.
    if (attributes.verb === '*') return { allowed: this.#options.allow === undefined };
    const anything = { verb: 'get', group: '', resource: '', namespace: '', name: '' } as const;
    const { resource = '' } = attributes;
    const full = subresource === '' ? resource : `${resource}/${subresource}`;
    return { allowed: this.allows(user, { ...anything, ...attributes, resource: full }) };
  }

  #userOf(authorization: string | undefined, client: string | undefined): string | undefined {
    const { tokens, passwords = new Map<string, string>() } = this.#options;
    const token = bearerOf(authorization);
    if (token !== undefined) return tokens?.get(token);
    const login = [...passwords].find(([name, password]) => authorization === basicAuthorization(name, password));
    return login?.[0] ?? client;
  }

  #check(attempt: Attempt): void {
    if (this.#options.allow?.(attempt) ?? true) return;
    const { user, verb, group, resource, namespace, name } = attempt;
    const what = `${qualified({ group, resource })}${name && ` "${name}"`} is forbidden`;
    const scope = namespace === '' ? ' at the cluster scope' : ` in the namespace "${namespace}"`;
    const who = `User "${user}" cannot ${verb} resource "${resource}" in API group "${group}"${scope}`;
    throw new Refusal(403, 'Forbidden', `${what}: ${who}`, { name, group, kind: resource });
  }
}

function bearerOf(authorization: string | undefined): string | undefined {
  return /^Bearer (.+)$/.exec(authorization ?? '')?.[1];
}

function actingAs(user: string, headers: Exchange['headers']): ApiUser {
  const { 'impersonate-user': name = user, 'impersonate-group': groups = '' } = headers;
  const named = String(groups)
    .split(', ')
    .filter((group) => group !== '');
  return { name: String(name), groups: named };
}
