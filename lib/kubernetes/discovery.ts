import { isPluginError, PluginError } from '../errors.ts';
import type { Exchange } from './exchange.ts';
import type { KubeTarget } from './kubeconfig.ts';
import { isFields, type Fields } from './kubeconfigMerge.ts';

/** Which object of a cluster; `namespace` for kinds that have one, the context’s by default. */
export interface ObjectReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string | undefined };
}

/** A kind as this cluster serves it: under which name in URLs, and whether its objects live in namespaces. */
export interface ServedKind {
  readonly kind: string;
  readonly resource: string;
  readonly namespaced: boolean;
}

/** Which kinds a cluster serves, and where in its API. */
export class Discovery {
  readonly #target: KubeTarget;
  readonly #exchange: Exchange;
  readonly #served: Map<string, Promise<ServedKind[]>>;

  /** `served`: what is known already. */
  constructor(target: KubeTarget, exchange: Exchange, served = new Map<string, Promise<ServedKind[]>>()) {
    this.#target = target;
    this.#exchange = exchange;
    this.#served = served;
  }

  /** The same, which asks over another exchange for what neither of the two knows yet. */
  over(exchange: Exchange): Discovery {
    return new Discovery(this.#target, exchange, this.#served);
  }

  /** Finds how a kind is served; undefined when it is not. What was served once is not asked again. */
  async find(apiVersion: string, kind: string): Promise<ServedKind | undefined> {
    if (!/^(?:[a-z0-9][a-z0-9.-]*\/)?v[a-z0-9]+$/.test(apiVersion)) return undefined;
    const known = await this.#served.get(apiVersion)?.catch(() => undefined);
    const found = known?.find((served) => served.kind === kind);
    if (found) return found;
    // A kind may have come since: its definition may be one of the objects that were just applied.
    const asked = this.#discover(apiVersion);
    this.#served.set(apiVersion, asked);
    return (await asked).find((served) => served.kind === kind);
  }

  /** Makes the path of an object, of the collection that it is in, or of its status. Throws `not-served`, and `invalid-object` for names that lead elsewhere. */
  async pathOf(
    { apiVersion, kind, metadata }: ObjectReference,
    { collection = false, subresource }: { collection?: boolean; subresource?: string } = {},
  ): Promise<string> {
    for (const part of [metadata.name, metadata.namespace ?? '']) checkSegment(part, kind);
    const served = await this.find(apiVersion, kind);
    if (!served) {
      throw new PluginError('not-served', `The cluster ${this.#target.name} does not serve ${kind} (${apiVersion})`, {
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

  /** Makes the path of all objects of a kind, in one namespace or in all. Throws as pathOf. */
  pathOfAll(apiVersion: string, kind: string, namespace = ''): Promise<string> {
    return this.pathOf({ apiVersion, kind, metadata: { name: '', namespace } });
  }

  async #discover(apiVersion: string): Promise<ServedKind[]> {
    const answer = await orUndefined(this.#exchange.send({ method: 'GET', path: rootOf(apiVersion) }));
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

/** Refuses, as kubectl does, what would make the path of a request lead somewhere else. */
function checkSegment(part: unknown, kind: string): void {
  if (typeof part === 'string' && part !== '.' && part !== '..' && !/[/%]/.test(part)) return;
  throw new PluginError('invalid-object', `“${String(part)}” cannot be the name or namespace of a ${kind}`);
}

function rootOf(apiVersion: string): string {
  return `${apiVersion.includes('/') ? '/apis' : '/api'}/${apiVersion}`;
}

/** What a cluster answers, or undefined where it does not have what was asked for. */
export async function orUndefined<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (isPluginError(error, 'not-found')) return undefined;
    throw error;
  }
}
