import { setTimeout as sleep } from 'node:timers/promises';
import type { V1DeleteOptions, V1Eviction } from '@kubernetes/client-node';
import type { Json, KubernetesObject } from '#config/manifest';
import type { Context } from '#context';
import { ignoring, messageOf } from '#errors';
import { fieldsOf, listOf, textOf, type Fields } from '#fields';
import { ApiError } from './apply/apiErrors.ts';
import { findTarget, type KubeconfigOptions, type KubeTarget } from './connection/kubeconfig.ts';
import { Session } from './connection/session.ts';
import { Exchange, parseTimeout, type ExchangeOptions, Rehearsal, type DryRunMode } from './exchange.ts';
import { Discovery, type ObjectReference, type ServedKind } from './objects/discovery.ts';
import type { StoredObject } from './objects/storedObject.ts';
import { PodExec, type PodCommand, type PodCommandResult } from './podExec.ts';
import { clusterVersionReference, readClusterVersion, type ClusterVersion } from './version/clusterVersion.ts';
import { awaitChange, watchObjects } from './watch.ts';

const table = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';

/** Options of each request that writes an object. */
export interface WriteOptions {
  /** Let the server check everything and keep nothing. */
  readonly dryRun?: boolean;
  /** The field manager, at most 128 characters; `fieldManager` by default. */
  readonly manager?: string;
}

/** Options of requests that change an object or its status. */
export interface ChangeOptions extends WriteOptions {
  /**
   * Change only the status, which must exist. By default, changes everything except the status, if the kind has it as a
   * subresource.
   */
  readonly subresource?: 'status';
}

/** The part of a log to read; all of it by default. */
export interface LogOptions {
  readonly container: string;
  /** The number of lines at the end. */
  readonly tailLines?: number;
  /** Whether to read the log of the container that ended before. */
  readonly previous?: boolean;
  /** The number of bytes from the first of these lines. */
  readonly limitBytes?: number;
}

/** The objects of a kind that a list contains; by default all. */
export interface ListOptions {
  /** The namespace; all by default. */
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  /** The number of objects in each request; default 500. */
  readonly pageSize?: number;
}

/** The connection flags of kubectl, time limits and retries. */
export interface ClusterOptions extends KubeconfigOptions, Omit<ExchangeOptions, 'requestTimeout' | 'rehearsal'> {
  /** Milliseconds, or a duration of kubectl: `30`, `30s`, `2m`; 0 for no limit. Default one minute. */
  readonly requestTimeout?: number | string | undefined;
  /** Whether the user is at a terminal, so that a credential plugin may ask questions. */
  readonly hasTerminal?: boolean | undefined;
  /** Lets no write take effect, as Rehearsal does. */
  readonly dryRun?: DryRunMode | undefined;
}

/** The name of this program in `metadata.managedFields`, unless a write names another manager. */
export const fieldManager = 'oc-disconnected';

/**
 * Finds the cluster that flags and kubeconfig name. Sends no request. Throws `no-cluster`, and the errors of reading
 * the files.
 */
export async function connectCluster(options: ClusterOptions, context: Context): Promise<Cluster> {
  const requestTimeout = parseTimeout(options.requestTimeout);
  const target = await findTarget(options);
  const session = new Session(target, options, context);
  const rehearsal = options.dryRun && new Rehearsal(options.dryRun);
  const exchange = new Exchange(target, session, { ...options, requestTimeout, rehearsal }, context);
  return new Cluster(target, { session, exchange, exec: new PodExec(target, session, context) });
}

/**
 * A cluster, with generic reads and writes of each kind that it serves. The object API of @kubernetes/client-node drops
 * unknown fields, so writing an object back would remove them. Each method throws the errors of Exchange.send, and
 * `not-served` for a kind that the cluster does not serve.
 */
export class Cluster {
  /** The name of the context, for messages. */
  readonly name: string;
  readonly server: string;
  /** The namespace of objects without one. */
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

  /** Reads an object; undefined if it does not exist. */
  async read(reference: ObjectReference): Promise<StoredObject | undefined> {
    const path = await this.#kinds.pathOf(reference);
    return await (this.#exchange.send({ method: 'GET', path }) as Promise<StoredObject>).catch(ignoring('not-found'));
  }

  /** Reads all objects of a kind in pages. Restarts if the list has expired (410). */
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

  /** Reads the metadata of all objects of a kind, or of those in a namespace, without their content. */
  async listMetadata(apiVersion: string, kind: string, namespace?: string): Promise<StoredObject[]> {
    const path = await this.#kinds.pathOfAll(apiVersion, kind, namespace);
    const accept = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io';
    const { items } = (await this.#exchange.send({ method: 'GET', path, accept })) as { items?: StoredObject[] };
    return (items ?? []).map((item) => ({ ...item, apiVersion, kind }));
  }

  /**
   * Reads the columns of `oc get -o wide` of all objects of a kind, by the names of the columns. The response is small
   * even if the objects are large. It may be as old as the cache of the server, which its resourceVersion tells.
   * Undefined if the server has no tables.
   */
  async listColumns(
    apiVersion: string,
    kind: string,
  ): Promise<{ readonly rows: Fields[]; readonly resourceVersion: string | undefined } | undefined> {
    const path = await this.#kinds.pathOfAll(apiVersion, kind);
    const query = { includeObject: 'None', resourceVersion: '0' };
    const answer = fieldsOf(await this.#exchange.send({ method: 'GET', path, query, accept: table }));
    if (answer['kind'] !== 'Table') return undefined;
    const names = listOf(answer['columnDefinitions']).map(({ name }) => String(name));
    const rows = listOf(answer['rows']).map(({ cells }) =>
      Object.fromEntries((cells as unknown[]).map((cell, index) => [names[index] ?? '', cell])),
    );
    return { rows, resourceVersion: textOf(fieldsOf(answer['metadata'])['resourceVersion']) };
  }

  /**
   * Waits until an object of a kind has changed since a resourceVersion, or the server ends the watch. Receives columns
   * only. Throws the errors of the server, and `interrupted`.
   */
  async awaitChange(apiVersion: string, kind: string, resourceVersion: string): Promise<void> {
    const path = await this.#kinds.pathOfAll(apiVersion, kind);
    const open = (since: string, signal: AbortSignal) => {
      const query = { watch: 'true', allowWatchBookmarks: 'true', includeObject: 'None', resourceVersion: since };
      return this.#exchange.open({ method: 'GET', path, query, accept: table }, signal);
    };
    await awaitChange({ kind, open }, resourceVersion, this.#exchange.context);
  }

  /**
   * Yields all objects of a kind, and again after each change, until the signal is aborted. Reconnects after failures
   * of the server, and lists again if the changes have expired (410). Combines changes that arrive together. Throws
   * `interrupted`, and errors that no retry can fix.
   */
  async *watch(apiVersion: string, kind: string, options: ListOptions = {}): AsyncGenerator<readonly StoredObject[]> {
    const path = await this.#kinds.pathOfAll(apiVersion, kind, options.namespace);
    const { labelSelector, fieldSelector } = options;
    const list = () => this.#listPages(path, options);
    const open = (resourceVersion: string, signal: AbortSignal) => {
      const query = { watch: 'true', allowWatchBookmarks: 'true', resourceVersion, labelSelector, fieldSelector };
      return this.#exchange.open({ method: 'GET', path, query }, signal);
    };
    yield* watchObjects({ apiVersion, kind, list, open }, this.#exchange.retry, this.#exchange.context);
  }

  /** Creates an object, and returns it as stored. Throws `conflict` (reason `AlreadyExists`) if it exists. */
  async create(object: KubernetesObject, options: WriteOptions = {}): Promise<StoredObject> {
    const path = await this.#kinds.pathOf(object, { collection: true });
    const query = queryOf(options);
    return (await this.#exchange.send({ method: 'POST', path, query, body: object })) as StoredObject;
  }

  /** Replaces an object. Throws `conflict` (reason `Conflict`) if its `metadata.resourceVersion` is outdated. */
  async update(object: KubernetesObject, options: ChangeOptions = {}): Promise<StoredObject> {
    const path = await this.#kinds.pathOf(object, options);
    const query = queryOf(options);
    return (await this.#exchange.send({ method: 'PUT', path, query, body: object })) as StoredObject;
  }

  /**
   * Creates an object or sets its fields by server-side apply. Throws `conflict` if another manager has set a field to
   * another value (`details.causes` names it), unless `force` takes it over.
   */
  async apply(object: KubernetesObject, options: ChangeOptions & { readonly force?: boolean } = {}) {
    const path = await this.#kinds.pathOf(object, options);
    const query = { ...queryOf(options), force: String(options.force ?? false) };
    const contentType = 'application/apply-patch+yaml';
    return (await this.#exchange.send({ method: 'PATCH', path, query, body: object, contentType })) as StoredObject;
  }

  /** Applies a merge patch (RFC 7386). Throws `conflict` if it has a `metadata.resourceVersion` that is outdated. */
  async patch(reference: ObjectReference, patch: Fields, options: ChangeOptions = {}): Promise<StoredObject> {
    const path = await this.#kinds.pathOf(reference, options);
    const query = queryOf(options);
    const contentType = 'application/merge-patch+json';
    return (await this.#exchange.send({ method: 'PATCH', path, query, body: patch, contentType })) as StoredObject;
  }

  /** Deletes an object; false if it did not exist. A resourceVersion or uid in the reference is a precondition. */
  async delete(reference: ObjectReference | StoredObject, { dryRun = false }: WriteOptions = {}): Promise<boolean> {
    const path = await this.#kinds.pathOf(reference);
    const { uid, resourceVersion } = reference.metadata as StoredObject['metadata'];
    const preconditions = { ...(uid && { uid }), ...(resourceVersion && { resourceVersion }) };
    // API servers ignore the query if there is a body: a dryRun in the query would really delete.
    const body: Json<V1DeleteOptions> = {
      apiVersion: 'v1',
      kind: 'DeleteOptions',
      preconditions,
      ...(dryRun && { dryRun: ['All'] }),
    };
    return (await this.#exchange.send({ method: 'DELETE', path, body }).catch(ignoring('not-found'))) !== undefined;
  }

  /** Evicts a pod by its uid, as a drain does. Throws `rate-limited` while a PodDisruptionBudget does not allow it. */
  async evict({ name, namespace, uid }: ObjectReference['metadata'] & { readonly uid: string }): Promise<void> {
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace } };
    const path = `${await this.#kinds.pathOf(pod)}/eviction`;
    const body: Json<V1Eviction> = {
      apiVersion: 'policy/v1',
      kind: 'Eviction',
      metadata: { name, namespace },
      deleteOptions: { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid } },
    };
    await this.#exchange.send({ method: 'POST', path, body }).catch(ignoring('not-found'));
  }

  /** Returns how the cluster serves a kind; undefined if it does not. Caches served kinds. */
  findKind(apiVersion: string, kind: string): Promise<ServedKind | undefined> {
    return this.#kinds.find(apiVersion, kind);
  }

  /**
   * Returns the present time by the clock of the API server, in milliseconds since 1970, as of its last response. The
   * clocks of this machine and of nodes may differ from it.
   */
  now(): number {
    return this.#session.now();
  }

  /** Reads the Kubernetes version of the API server (`v1.27.3`) and its platform (`linux/amd64`). */
  async version(): Promise<{ readonly gitVersion: string; readonly platform: string }> {
    const { gitVersion = '', platform = '' } = fieldsOf(await this.get('/version'));
    return { gitVersion: String(gitVersion), platform: String(platform) };
  }

  /** Reads a path of the API server, as `oc get --raw` does: `/api/v1/nodes/NAME/proxy/stats/summary`. */
  async get(path: string): Promise<unknown> {
    return await this.#exchange.send({ method: 'GET', path });
  }

  /** Reads a path of the API server whose answer is text, such as `/api/v1/nodes/NAME/proxy/metrics`. */
  async getText(path: string, query: Readonly<Record<string, string | undefined>> = {}): Promise<string> {
    return await this.#exchange.sendForText({ method: 'GET', path, query, accept: 'text/plain, */*' });
  }

  /** Reads the log of a container, as `oc logs` does. Throws `not-found`, and the errors of Exchange.send. */
  async readLog(
    { name, namespace }: ObjectReference['metadata'],
    { container, tailLines, limitBytes, previous }: LogOptions,
  ): Promise<string> {
    const path = `${await this.#kinds.pathOf({ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace } })}/log`;
    const limits = { tailLines: tailLines?.toString(), limitBytes: limitBytes?.toString() };
    const query = { container, ...limits, previous: previous ? 'true' : undefined };
    return await this.getText(path, query);
  }

  /** Runs a command in a container of a pod, as `oc exec` does; see PodExec.run. */
  async exec(command: PodCommand): Promise<PodCommandResult> {
    return await this.#exec.run(command);
  }

  /** Reads the version of an OpenShift cluster; undefined if the cluster has none. */
  async clusterVersion(): Promise<ClusterVersion | undefined> {
    const { apiVersion, kind } = clusterVersionReference;
    if (!(await this.findKind(apiVersion, kind))) return undefined;
    const object = await this.read(clusterVersionReference);
    return object && readClusterVersion(object);
  }

  /** Returns a client whose requests and commands also end with `signal`. It shares the known kinds. */
  within(signal: AbortSignal): Cluster {
    return this.#with(this.#exchange.within(signal));
  }

  /** Returns a client whose requests end only with this signal, for requests after an interruption. */
  detached(signal: AbortSignal): Cluster {
    return this.#with(this.#exchange.detached(signal));
  }

  #with(exchange: Exchange): Cluster {
    const exec = new PodExec(this.#target, this.#session, exchange.context);
    return new Cluster(this.#target, { session: this.#session, exchange, exec, kinds: this.#kinds.over(exchange) });
  }

  /** Closes all connections. */
  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
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

/** A kind to watch, and a selection of its objects; all by default. */
interface ViewedKind extends Pick<ListOptions, 'namespace' | 'labelSelector'> {
  readonly apiVersion: string;
  readonly kind: string;
}

/** Holds the present objects of several kinds, and reports changes. */
export class ClusterView {
  readonly #cluster: Cluster;
  readonly #context: Context;
  readonly #onChange: () => void;
  readonly #objects = new Map<string, readonly StoredObject[]>();
  readonly #kinds: readonly ViewedKind[];
  readonly #retryPause: number;

  /** `retryPause`: the pause before a retry of a kind that is not served or must not be watched, in milliseconds. */
  constructor(
    cluster: Cluster,
    { kinds, retryPause }: { kinds: readonly ViewedKind[]; retryPause: number },
    onChange: () => void,
    context: Context,
  ) {
    this.#retryPause = retryPause;
    this.#cluster = cluster;
    this.#kinds = kinds;
    this.#onChange = onChange;
    this.#context = context;
  }

  /** Whether all kinds have been listed. */
  get complete(): boolean {
    return this.#kinds.every(({ kind }) => this.#objects.has(kind));
  }

  /** Returns the objects of a kind; none if the cluster does not serve it. */
  list(kind: string): readonly StoredObject[] {
    return this.#objects.get(kind) ?? [];
  }

  /** Watches until the signal is aborted. Never throws. */
  async run(): Promise<void> {
    await Promise.all(this.#kinds.map((kind) => this.#follow(kind)));
  }

  async #follow({ apiVersion, kind, ...which }: ViewedKind): Promise<void> {
    const { signal } = this.#context;
    for (;;) {
      try {
        if (await this.#cluster.findKind(apiVersion, kind)) {
          for await (const objects of this.#cluster.watch(apiVersion, kind, which)) this.#keep(kind, objects);
        }
        // An update may add the kind to the cluster.
        this.#keep(kind, []);
      } catch (error) {
        if (signal.aborted) return;
        this.#context.log('warn', `${kind} cannot be watched: ${messageOf(error)}`);
      }
      await sleep(this.#retryPause, undefined, { signal }).catch(() => undefined);
    }
  }

  #keep(kind: string, objects: readonly StoredObject[]): void {
    this.#objects.set(kind, objects);
    this.#onChange();
  }
}
