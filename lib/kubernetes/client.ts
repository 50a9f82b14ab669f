import type { KubernetesObject } from '../config/manifest.ts';
import type { Context } from '../context.ts';
import { clusterVersionReference, readClusterVersion, type ClusterVersion } from './clusterVersion.ts';
import { Discovery, orUndefined, type ObjectReference, type ServedKind } from './discovery.ts';
import { Exchange, parseTimeout, type ExchangeOptions } from './exchange.ts';
import { fieldsOf, listOf, type StoredObject } from './fields.ts';
import { findTarget, type KubeconfigOptions, type KubeTarget } from './kubeconfig.ts';
import { isFields, type Fields } from './kubeconfigMerge.ts';
import { PodExec, type PodCommand, type PodCommandResult } from './podExec.ts';
import { ApiError } from './refusals.ts';
import { Session } from './session.ts';
import { watchObjects } from './watch.ts';

/** How to write. */
export interface WriteOptions {
  /** Lets the server check everything and keep nothing. */
  readonly dryRun?: boolean;
  /** Who the cluster is to note as the writer of the fields, at most 128 characters; `fieldManager` by default. */
  readonly manager?: string;
}

/** How to change what is there. */
export interface ChangeOptions extends WriteOptions {
  /** Change the status and nothing else, which has to exist; by default everything but that, of kinds that keep it apart. */
  readonly subresource?: 'status';
}

/** How to choose among the objects of a kind. */
export interface ListOptions {
  /** All namespaces by default. */
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  /** Objects per request; default 500. */
  readonly pageSize?: number;
}

/** How to talk to a cluster: kubectl’s connection flags, and patience. */
export interface ClusterOptions extends KubeconfigOptions, Omit<ExchangeOptions, 'requestTimeout'> {
  /** Milliseconds, or as kubectl has it: `30`, `30s`, `2m`; 0 for no limit. Default one minute. */
  readonly requestTimeout?: number | string | undefined;
  /** Whether somebody is at the terminal whom a credential plugin may ask. */
  readonly hasTerminal?: boolean | undefined;
}

/** The name under which the cluster notes what we wrote (field manager). */
export const fieldManager = 'oc-disconnected';

/** Finds the cluster that flags and kubeconfig name, without asking it anything. Throws `no-cluster` and what is wrong with the files. */
export async function connectCluster(options: ClusterOptions, context: Context): Promise<Cluster> {
  const requestTimeout = parseTimeout(options.requestTimeout);
  const target = await findTarget(options);
  const session = new Session(target, options, context);
  const exchange = new Exchange(target, session, { ...options, requestTimeout }, context);
  return new Cluster(target, { session, exchange, exec: new PodExec(target, session, context) });
}

/**
 * A cluster: generic reads and writes of any kind that it serves. The package’s own object API is not used, because it drops
 * the fields that it does not know from what it reads, so that writing the object back would remove them. Every method
 * throws what Exchange.send throws, and `not-served` for a kind that the cluster does not know.
 */
export class Cluster {
  /** The context’s name, for people. */
  readonly name: string;
  readonly server: string;
  /** The namespace of objects that name none. */
  readonly namespace: string;
  readonly #target: KubeTarget;
  readonly #session: Session;
  readonly #exchange: Exchange;
  readonly #exec: PodExec;
  readonly #kinds: Discovery;

  constructor(
    target: KubeTarget,
    { session, exchange, exec, kinds }: { session: Session; exchange: Exchange; exec: PodExec; kinds?: Discovery },
  ) {
    this.name = target.name;
    this.server = target.server;
    this.namespace = target.namespace;
    this.#target = target;
    this.#session = session;
    this.#exchange = exchange;
    this.#exec = exec;
    this.#kinds = kinds ?? new Discovery(target, exchange);
  }

  /** Reads an object; undefined when it does not exist. */
  async read(reference: ObjectReference): Promise<StoredObject | undefined> {
    const path = await this.#kinds.pathOf(reference);
    return await orUndefined(this.#exchange.send({ method: 'GET', path }) as Promise<StoredObject>);
  }

  /** Reads all objects of a kind, page by page; begins anew when the cluster has forgotten where it was (410). */
  async list(apiVersion: string, kind: string, options: ListOptions = {}): Promise<StoredObject[]> {
    const path = await this.#kinds.pathOfAll(apiVersion, kind, options.namespace);
    for (let attempt = 1; ; attempt += 1) {
      try {
        return (await this.#listPages(path, options)).items.map((item) => ({ ...item, apiVersion, kind }));
      } catch (error) {
        if (attempt === 3 || !(error instanceof ApiError) || error.status !== 410) throw error;
      }
    }
  }

  /**
   * Reads what `oc get -o wide` shows of all objects of a kind, as values by the names of its columns: little, however large the objects are. It may be as old as what
   * the server has at hand. Undefined where the server knows no such tables.
   */
  async listColumns(apiVersion: string, kind: string): Promise<Fields[] | undefined> {
    const path = await this.#kinds.pathOfAll(apiVersion, kind);
    const query = { includeObject: 'None', resourceVersion: '0' };
    const accept = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
    const answer = fieldsOf(await this.#exchange.send({ method: 'GET', path, query, accept }));
    if (answer['kind'] !== 'Table') return undefined;
    const names = listOf(answer['columnDefinitions']).map(({ name }) => String(name));
    return listOf(answer['rows']).map(({ cells }) =>
      Object.fromEntries((cells as unknown[]).map((cell, index) => [names[index] ?? '', cell])),
    );
  }

  /**
   * Gives all objects of a kind, and again after each change, for as long as the signal lets it: from one list on, watching for what
   * happens to them. Survives servers that go away, and lists anew where the cluster has forgotten the changes in between (410).
   * Changes that come together are told together. Never ends by itself; throws `interrupted`, and what no patience helps against.
   */
  async *watch(apiVersion: string, kind: string, options: ListOptions = {}): AsyncGenerator<readonly StoredObject[]> {
    const path = await this.#kinds.pathOfAll(apiVersion, kind, options.namespace);
    const { labelSelector, fieldSelector } = options;
    const list = () => this.#listPages(path, options);
    const open = (resourceVersion: string, signal: AbortSignal) => {
      const query = { watch: 'true', allowWatchBookmarks: 'true', resourceVersion, labelSelector, fieldSelector };
      return this.#exchange.open({ method: 'GET', path, query }, signal);
    };
    yield* watchObjects({ apiVersion, kind, list, open }, this.#exchange.patience, this.#exchange.context);
  }

  /** Creates an object and gives it as it was stored. Throws `conflict` (reason `AlreadyExists`) when it exists. */
  async create(object: KubernetesObject, options: WriteOptions = {}): Promise<StoredObject> {
    const path = await this.#kinds.pathOf(object, { collection: true });
    const query = queryOf(options);
    return (await this.#exchange.send({ method: 'POST', path, query, body: object })) as StoredObject;
  }

  /** Replaces an object; throws `conflict` (reason `Conflict`) when it is no longer the one of `metadata.resourceVersion`. */
  async update(object: KubernetesObject, options: ChangeOptions = {}): Promise<StoredObject> {
    const path = await this.#kinds.pathOf(object, options);
    const query = queryOf(options);
    return (await this.#exchange.send({ method: 'PUT', path, query, body: object })) as StoredObject;
  }

  /**
   * Server-side apply: creates the object or sets the fields that it states. Throws `conflict` when somebody else owns
   * one of them with another value (`details.causes` names them), unless `force` takes them over.
   */
  async apply(object: KubernetesObject, options: ChangeOptions & { readonly force?: boolean } = {}) {
    const path = await this.#kinds.pathOf(object, options);
    const query = { ...queryOf(options), force: String(options.force ?? false) };
    const contentType = 'application/apply-patch+yaml';
    return (await this.#exchange.send({ method: 'PATCH', path, query, body: object, contentType })) as StoredObject;
  }

  /** Lays a merge patch over an object (RFC 7386); one with `metadata.resourceVersion` over that version only, else throws `conflict`. */
  async patch(reference: ObjectReference, patch: Fields, options: ChangeOptions = {}): Promise<StoredObject> {
    const path = await this.#kinds.pathOf(reference, options);
    const query = queryOf(options);
    const contentType = 'application/merge-patch+json';
    return (await this.#exchange.send({ method: 'PATCH', path, query, body: patch, contentType })) as StoredObject;
  }

  /** Deletes an object; false when it did not exist. With a resourceVersion or uid in the reference, only that one. */
  async delete(reference: ObjectReference | StoredObject, { dryRun = false }: WriteOptions = {}): Promise<boolean> {
    const path = await this.#kinds.pathOf(reference);
    const { uid, resourceVersion } = reference.metadata as StoredObject['metadata'];
    const preconditions = { ...(uid && { uid }), ...(resourceVersion && { resourceVersion }) };
    // Where a DELETE has a body, API servers ignore the query: a dryRun there would really delete.
    const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions, ...(dryRun && { dryRun: ['All'] }) };
    return (await orUndefined(this.#exchange.send({ method: 'DELETE', path, body }))) !== undefined;
  }

  /** How the cluster serves a kind; undefined when it does not. What was served once is not asked again. */
  findKind(apiVersion: string, kind: string): Promise<ServedKind | undefined> {
    return this.#kinds.find(apiVersion, kind);
  }

  /** The Kubernetes version of the API server (`v1.27.3`) and its platform (`linux/amd64`). */
  async version(): Promise<{ readonly gitVersion: string; readonly platform: string }> {
    const answer = await this.#exchange.send({ method: 'GET', path: '/version' });
    const { gitVersion = '', platform = '' } = isFields(answer) ? answer : {};
    return { gitVersion: String(gitVersion), platform: String(platform) };
  }

  /** Reads any path of the API server, as `oc get --raw` does: `/api/v1/nodes/NAME/proxy/stats/summary`. */
  async get(path: string): Promise<unknown> {
    return await this.#exchange.send({ method: 'GET', path });
  }

  /** Runs a command in a container of a pod, as `oc exec` does; see PodExec.run. */
  async exec(command: PodCommand): Promise<PodCommandResult> {
    return await this.#exec.run(command);
  }

  /** What the cluster version operator says about itself; undefined where there is none: not an OpenShift cluster. */
  async clusterVersion(): Promise<ClusterVersion | undefined> {
    const { apiVersion, kind } = clusterVersionReference;
    if (!(await this.findKind(apiVersion, kind))) return undefined;
    const object = await this.read(clusterVersionReference);
    return object && readClusterVersion(object);
  }

  /** The same cluster for something that may end earlier: its requests and commands in pods end with the signal too. What is known of the kinds it serves is shared. */
  within(signal: AbortSignal): Cluster {
    return this.#with(this.#exchange.within(signal));
  }

  /** The same cluster, whose requests end with this signal only: for what has to be sent after an interruption. */
  detached(signal: AbortSignal): Cluster {
    return this.#with(this.#exchange.detached(signal));
  }

  #with(exchange: Exchange): Cluster {
    const [target, session] = [this.#target, this.#session];
    const exec = new PodExec(target, session, exchange.context);
    return new Cluster(target, { session, exchange, exec, kinds: this.#kinds.over(exchange) });
  }

  /** Closes every connection. */
  close(): void {
    this.#session.close();
  }

  async #listPages(path: string, { labelSelector, fieldSelector, pageSize = 500 }: ListOptions) {
    const items: StoredObject[] = [];
    for (let next: string | undefined; ;) {
      const query = { limit: String(pageSize), labelSelector, fieldSelector, continue: next };
      const page = (await this.#exchange.send({ method: 'GET', path, query })) as {
        items?: StoredObject[] | null;
        metadata?: { continue?: string; resourceVersion?: string };
      };
      items.push(...(page.items ?? []));
      next = page.metadata?.continue || undefined;
      if (next === undefined) return { items, resourceVersion: page.metadata?.resourceVersion ?? '' };
    }
  }
}

function queryOf({ manager = fieldManager, dryRun = false }: WriteOptions): Record<string, string> {
  return { fieldManager: manager, ...(dryRun && { dryRun: 'All' }) };
}
