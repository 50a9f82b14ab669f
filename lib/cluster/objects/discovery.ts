import { ignoring, PluginError } from '#errors';
import { isFields, type Fields } from '#fields';
import type { KubeTarget } from '../connection/kubeconfig.ts';
import type { Exchange } from '../exchange.ts';

/** A reference to an object. The namespace is that of the context by default. */
export interface ObjectReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string | undefined };
}

/** Returns only what identifies an object. */
export function referenceOf({ apiVersion, kind, metadata: { name, namespace } }: ObjectReference): ObjectReference {
  return { apiVersion, kind, metadata: { name, ...(namespace !== undefined && { namespace }) } };
}

/** The way in which the cluster serves a kind: its name in URLs, and whether it has namespaces. */
export interface ServedKind {
  readonly kind: string;
  readonly resource: string;
  readonly namespaced: boolean;
}

/** Finds the kinds that a cluster serves, and their paths. */
export class Discovery {
  readonly #target: KubeTarget;
  readonly #exchange: Exchange;
  readonly #served: Map<string, Promise<ServedKind[]>>;

  /** `served`: the kinds that are already known. */
  constructor(target: KubeTarget, exchange: Exchange, served = new Map<string, Promise<ServedKind[]>>()) {
    this.#target = target;
    this.#exchange = exchange;
    this.#served = served;
  }

  /** Returns a Discovery with another exchange and the same known kinds. */
  over(exchange: Exchange): Discovery {
    return new Discovery(this.#target, exchange, this.#served);
  }

  /** Returns how a kind is served; undefined if it is not. Caches served kinds. */
  async find(apiVersion: string, kind: string): Promise<ServedKind | undefined> {
    if (!/^(?:[a-z0-9][a-z0-9.-]*\/)?v[a-z0-9]+$/.test(apiVersion)) return undefined;
    const earlier = this.#served.get(apiVersion);
    const earlierKinds = await earlier?.catch(() => undefined);
    const servedKind = earlierKinds?.find((served) => served.kind === kind);
    if (servedKind) return servedKind;
    // The objects that were just applied may have defined the kind. One request is enough for concurrent callers.
    let asked = this.#served.get(apiVersion);
    if (!asked || asked === earlier) this.#served.set(apiVersion, (asked = this.#discover(apiVersion)));
    return (await asked).find((served) => served.kind === kind);
  }

  /**
   * Returns the path of an object, of its collection, or of its status. Throws `not-served`, and `invalid-object` for
   * names that change the path.
   */
  async pathOf(
    { apiVersion, kind, metadata }: ObjectReference,
    { collection = false, subresource }: { collection?: boolean; subresource?: string } = {},
  ): Promise<string> {
    for (const part of [metadata.name, metadata.namespace ?? '']) checkSegment(part, kind);
    const served = await this.find(apiVersion, kind);
    if (!served) {
      throw new PluginError('not-served', `the cluster ${this.#target.name} does not serve ${kind} (${apiVersion})`, {
        hint: 'The operator or the OpenShift version that brings it is not installed.',
      });
    }
    const { name, namespace = this.#target.namespace } = metadata;
    const segments = [
      ...(served.namespaced && namespace !== '' ? ['namespaces', namespace] : []),
      served.resource,
      ...(collection || name === '' ? [] : [name]),
      ...(subresource === undefined ? [] : [subresource]),
    ];
    return `${rootOf(apiVersion)}/${segments.map(encodeURIComponent).join('/')}`;
  }

  /** Returns the path of all objects of a kind, in one namespace or in all. Throws the errors of pathOf. */
  pathOfAll(apiVersion: string, kind: string, namespace = ''): Promise<string> {
    return this.pathOf({ apiVersion, kind, metadata: { name: '', namespace } });
  }

  async #discover(apiVersion: string): Promise<ServedKind[]> {
    const answer = await this.#exchange.send({ method: 'GET', path: rootOf(apiVersion) }).catch(ignoring('not-found'));
    const { resources } = isFields(answer) ? answer : {};
    return (Array.isArray(resources) ? resources : [])
      .filter(isFields)
      .map(({ kind, name, namespaced }: Fields) => ({
        kind: String(kind),
        resource: String(name),
        namespaced: namespaced === true,
      }))
      .filter(({ resource }) => !resource.includes('/'));
  }
}

/** Throws `invalid-object` for names that would change the path of a request, as kubectl does. */
function checkSegment(part: unknown, kind: string): void {
  if (typeof part === 'string' && part !== '.' && part !== '..' && !/[/%]/.test(part)) return;
  throw new PluginError('invalid-object', `“${String(part)}” cannot be the name or namespace of a ${kind}`);
}

function rootOf(apiVersion: string): string {
  return `${apiVersion.includes('/') ? '/apis' : '/api'}/${apiVersion}`;
}
