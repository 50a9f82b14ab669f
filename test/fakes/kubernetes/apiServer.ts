import { parseAllDocuments } from 'yaml';
import type { Answer } from '../http/faults.ts';
import { FaultyServer, type Exchange, type ServerTls, type Upgrade } from '../http/faultyServer.ts';
import { json } from '../registry/tokenServer.ts';
import { ApiAccess, type AccessOptions, type ApiUser } from './apiAccess.ts';
import { discover } from './apiDiscovery.ts';
import { evictPod } from './apiEviction.ts';
import { execute, refuseUpgrade } from './apiExec.ts';
import { apiVersionOf, kindsOfDefinition, kubernetesKinds, openshiftKinds, type ApiKind } from './apiKinds.ts';
import { listObjects, omitContent, watchObjects } from './apiLists.ts';
import { ApiObjects, type ApiObject, type Place, type Writing } from './apiObjects.ts';
import { isJson, jsonPatch, mergePatch, type Json } from './apiPatch.ts';
import { evaluatePolicy, findBinding } from './apiPolicy.ts';
import { protobufType, readProtobuf } from './apiProtobuf.ts';
import { rightsOf, type Rule } from './apiRights.ts';
import { Refusal, statusAnswer } from './apiStatus.ts';
import { tabulateObject, tabulateObjects } from './apiTables.ts';

/** Options of an API server. */
export interface ApiServerOptions extends AccessOptions {
  /** With `ca` and `requestCert`, the common name of a client’s certificate is its user. */
  readonly tls?: ServerTls;
  /** The reported OpenShift version; undefined for plain Kubernetes. */
  readonly openshift?: string;
  /** The reported Kubernetes version; `v1.27.3` by default. Before 1.25 it refuses rules in definitions. */
  readonly kubernetes?: string;
  /** Kinds in addition to those of Kubernetes and OpenShift. */
  readonly kinds?: readonly ApiKind[];
  /** Whether watches get requested bookmarks; default true. A real server need not send any. */
  readonly bookmarks?: boolean;
  /** Changes a created object as admission does; by default unchanged. */
  readonly admit?: (object: Json) => Json;
  /** Whether to evaluate the stored ValidatingAdmissionPolicies on every write by a user. */
  readonly policies?: boolean;
}

/** The reported version of the server. */
const version = { major: '1', minor: '27', gitVersion: 'v1.27.3', platform: 'linux/amd64' };

/** The status of a refusal by a policy, by its reason. */
const policyStatus: Readonly<Record<string, number>> = {
  Unauthorized: 401,
  Forbidden: 403,
  RequestEntityTooLarge: 413,
};

const verbs = { GET: 'get', POST: 'create', PUT: 'update', PATCH: 'patch', DELETE: 'delete' } as const;

/** A Kubernetes API server in this process: REST semantics of any given kind, with the planned faults of a test. */
export class TestApiServer extends FaultyServer {
  readonly objects = new ApiObjects();
  /** The served kinds. Tests may change them, and created CustomResourceDefinitions add to them. */
  readonly kinds: ApiKind[];
  /** The reports of kubelets (`/stats/summary`), by the names of their nodes. */
  readonly nodeStats = new Map<string, object>();
  /** The running configuration of kubelets, by the names of their nodes. */
  readonly nodeConfigs = new Map<string, object>();
  /** The metrics of kubelets, by the name of the node. */
  readonly nodeMetrics = new Map<string, string>();
  /**
   * The folders that are the file systems of nodes, by their names. Commands run there, and agents see them as `/host`.
   */
  readonly nodeRoots = new Map<string, string>();
  /** The logs of pods, by namespace and name. */
  readonly podLogs = new Map<string, readonly string[]>();
  /** The command before each program that runs in a pod of a node, by the names of the nodes; none by default. */
  readonly podCommands = new Map<string, readonly string[]>();
  readonly #access: ApiAccess;
  readonly #admit: (object: Json) => Json;
  readonly #bookmarks: boolean;
  readonly #policies: boolean;
  readonly #version: string;

  constructor(options: ApiServerOptions = {}) {
    super(options.tls);
    this.#access = new ApiAccess(options, options.tls?.requestCert === true);
    const { openshift, kinds = [], admit = (object: Json) => object, bookmarks = true } = options;
    this.#admit = admit;
    this.#bookmarks = bookmarks;
    this.#policies = options.policies ?? false;
    this.#version = options.kubernetes ?? version.gitVersion;
    this.kinds = [...kubernetesKinds, ...(openshift === undefined ? [] : openshiftKinds(openshift)), ...kinds];
    this.objects.on('change', ({ type, kind, object }) => {
      if (kind.kind !== 'CustomResourceDefinition') return;
      if (type === 'ADDED') queueMicrotask(() => this.#establish({ kind, namespace: '', name: object.metadata.name }));
      const defined = kindsOfDefinition(object);
      const others = this.kinds.filter(
        (known) => !defined.some((made) => made.resource === known.resource && made.group === known.group),
      );
      this.kinds.splice(0, Infinity, ...others, ...(type === 'DELETED' ? [] : defined));
    });
    for (const name of [
      'default',
      ...(openshift === undefined
        ? []
        : ['openshift-config', 'openshift-config-managed', 'openshift-machine-config-operator']),
    ]) {
      this.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    }
    if (openshift !== undefined) this.put(clusterVersion(openshift));
  }

  /** Accepts a definition, which a real server does some moments after it was created. */
  #establish(place: Place): void {
    const definition = this.objects.get(place);
    if (!definition || isJson(definition['status'])) return;
    const { names } = definition['spec'] as Json;
    const conditions = [
      { type: 'NamesAccepted', status: 'True', reason: 'NoConflicts', message: 'no conflicts found' },
      {
        type: 'Established',
        status: 'True',
        reason: 'InitialNamesAccepted',
        message: 'the initial names have been accepted',
      },
    ];
    const body = { ...definition, status: { conditions, acceptedNames: names, storedVersions: [] } };
    this.objects.replace(place, body, { manager: 'kube-apiserver', dryRun: false, status: true });
  }

  /** Stores an object with its status, as if it had always existed. */
  put(object: Json, manager = 'before'): ApiObject {
    const place = this.#placeOf(object);
    const { uid: _, resourceVersion: __, managedFields: ___, ...metadata } = object['metadata'] as Json;
    const fresh = { ...object, metadata };
    if (this.objects.get(place)) this.objects.delete(place, {}, false);
    const stated = metadata['creationTimestamp'];
    const time = typeof stated === 'string' ? { created: new Date(stated) } : {};
    const created = this.objects.create(place, fresh, { manager, dryRun: false, ...time });
    if (!place.kind.status) return created;
    const { resourceVersion } = created.metadata;
    const whole = { ...fresh, metadata: { ...metadata, resourceVersion } };
    return this.objects.replace(place, whole, { manager, dryRun: false, status: true });
  }

  /** Lets the last writes of an object have been some milliseconds ago, by the clock of this server. */
  backdate({ apiVersion, kind, metadata }: ApiObject, age: number): void {
    const { managedFields = [] } = (this.find(apiVersion, kind, metadata.name, metadata.namespace)?.metadata ?? {}) as {
      managedFields?: { time: string }[];
    };
    for (const entry of managedFields) entry.time = new Date(Date.parse(entry.time) - age).toISOString();
  }

  /** Returns an object in its present state; undefined if it does not exist. */
  find(apiVersion: string, kind: string, name: string, namespace = ''): ApiObject | undefined {
    return this.objects.get(this.#placeOf({ apiVersion, kind, metadata: { name, namespace } }));
  }

  protected override async answer(exchange: Exchange): Promise<Answer> {
    try {
      return await this.#route(exchange);
    } catch (error) {
      if (error instanceof Refusal) return statusAnswer(error);
      throw error;
    }
  }

  protected override upgrade(exchange: Exchange, connection: Upgrade): void {
    try {
      const { fault, path } = exchange;
      if (fault.answer) throw new Refusal(fault.answer.status, 'Planned', 'as planned');
      const [, namespace = '', name = ''] = /\/namespaces\/([^/]+)\/pods\/([^/]+)\/exec$/.exec(path) ?? [];
      const place = this.#placeOf({ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace } });
      const kind = { ...place.kind, resource: 'pods/exec' };
      this.#access.authorize(this.#access.authenticate(exchange), 'create', { ...place, kind });
      const { nodeName = '' } = this.objects.demand(place)['spec'] as { nodeName?: string };
      const root = this.nodeRoots.get(nodeName);
      if (root === undefined) throw new Refusal(500, 'InternalError', `error dialing backend: no ${nodeName}`);
      execute(exchange, connection, { root, before: this.podCommands.get(nodeName) ?? [] });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      refuseUpgrade(connection, error);
    }
  }

  async #route(exchange: Exchange): Promise<Answer> {
    const user = this.#access.authenticate(exchange);
    const { path } = exchange;
    if (/^\/(healthz|readyz|livez)$/.test(path)) return { status: 200, body: 'ok' };
    if (path === '/version') return json(200, { ...version, gitVersion: this.#version });
    const found = discover(this.kinds, path);
    if (found) return json(200, found);
    const proxied = /^\/api\/v1\/nodes\/([^/]+)\/proxy\/stats\/summary$/.exec(path);
    if (proxied) return this.#tellStats(user, proxied[1] ?? '');
    const configured = /^\/api\/v1\/nodes\/([^/]+)\/proxy\/configz$/.exec(path);
    if (configured) return this.#tellConfig(user, configured[1] ?? '');
    const measured = /^\/api\/v1\/nodes\/([^/]+)\/proxy\/metrics$/.exec(path);
    if (measured) return this.#tellMetrics(user, measured[1] ?? '');
    const logged = /^\/api\/v1\/namespaces\/([^/]+)\/pods\/([^/]+)\/log$/.exec(path);
    if (logged) return this.#tellLog(exchange, user, { namespace: logged[1] ?? '', name: logged[2] ?? '' });
    const evicted = /^\/api\/v1\/namespaces\/([^/]+)\/pods\/([^/]+)\/eviction$/.exec(path);
    if (evicted) return this.#evict(exchange, user, { namespace: evicted[1] ?? '', name: evicted[2] ?? '' });
    const target = this.#resolve(path);
    const verb =
      exchange.method === 'GET' ? this.#readingVerb(exchange, target.name) : verbs[exchange.method as 'POST'];
    const { kind, status } = target;
    const place = status ? { ...target, kind: { ...kind, resource: `${kind.resource}/status` } } : target;
    this.#access.authorize(user, verb, place);
    const isApplied = mediaTypeOf(exchange) === 'application/apply-patch+yaml';
    if (isApplied && !this.objects.get(target)) this.#access.authorize(user, 'create', place);
    if (verb === 'list') {
      const { headers, query } = exchange;
      const makeList = /\bas=Table\b/.test(headers.accept ?? '') ? tabulateObjects : listObjects;
      const list = makeList(this.objects, target.kind, target.namespace, query);
      return json(200, /\bas=PartialObjectMetadataList\b/.test(headers.accept ?? '') ? omitContent(list) : list);
    }
    if (verb === 'watch') {
      if (!this.#bookmarks) exchange.query.delete('allowWatchBookmarks');
      const isTable = /\bas=Table\b/.test(exchange.headers.accept ?? '');
      const present = (object: ApiObject): object =>
        isTable ? tabulateObject(object, target.kind, exchange.query) : object;
      return watchObjects(this.objects, target.kind, target.namespace, exchange.query, present);
    }
    if (verb === 'get') return json(200, this.objects.demand(target));
    return await this.#write(exchange, target, user);
  }

  #tellMetrics(user: ApiUser, name: string): Answer {
    const kind = { group: '', version: 'v1', kind: 'NodeProxyOptions', resource: 'nodes/proxy', namespaced: false };
    this.#access.authorize(user, 'get', { kind, namespace: '', name });
    return { status: 200, headers: { 'Content-Type': 'text/plain' }, body: this.nodeMetrics.get(name) ?? '' };
  }

  #tellConfig(user: ApiUser, name: string): Answer {
    const kind = { group: '', version: 'v1', kind: 'NodeProxyOptions', resource: 'nodes/proxy', namespaced: false };
    this.#access.authorize(user, 'get', { kind, namespace: '', name });
    const kubeletconfig = this.nodeConfigs.get(name);
    if (kubeletconfig) return json(200, { kubeletconfig });
    throw new Refusal(404, 'NotFound', `nodes "${name}" not found`);
  }

  #tellStats(user: ApiUser, name: string): Answer {
    const kind = { group: '', version: 'v1', kind: 'NodeProxyOptions', resource: 'nodes/proxy', namespaced: false };
    this.#access.authorize(user, 'get', { kind, namespace: '', name });
    const stats = this.nodeStats.get(name);
    if (stats) return json(200, stats);
    throw new Refusal(404, 'NotFound', `nodes "${name}" not found`);
  }

  #tellLog({ query }: Exchange, user: ApiUser, metadata: { namespace: string; name: string }): Answer {
    const place = this.#placeOf({ apiVersion: 'v1', kind: 'Pod', metadata });
    this.#access.authorize(user, 'get', { ...place, kind: { ...place.kind, resource: 'pods/log' } });
    this.objects.demand(place);
    const lines = this.podLogs.get(`${metadata.namespace}/${metadata.name}`) ?? [];
    const tail = query.get('tailLines');
    const body = lines.slice(tail === null ? 0 : -Number(tail)).map((line) => `${line}\n`);
    const limit = Number(query.get('limitBytes') ?? Infinity);
    return { status: 200, headers: { 'Content-Type': 'text/plain' }, body: body.join('').slice(0, limit) };
  }

  async #evict(exchange: Exchange, user: ApiUser, metadata: { namespace: string; name: string }): Promise<Answer> {
    const place = this.#placeOf({ apiVersion: 'v1', kind: 'Pod', metadata });
    this.#access.authorize(user, 'create', { ...place, kind: { ...place.kind, resource: 'pods/eviction' } });
    const { deleteOptions } = (await readJson(exchange)) as { deleteOptions?: { preconditions?: Json } };
    const budgets = this.kinds.find(({ kind }) => kind === 'PodDisruptionBudget');
    evictPod(
      this.objects,
      place,
      budgets ? this.objects.list(budgets, place.namespace) : [],
      deleteOptions?.preconditions,
    );
    return json(201, { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success' });
  }

  async #write(exchange: Exchange, target: Place & { status: boolean }, user: ApiUser): Promise<Answer> {
    const body = await readJson(exchange);
    if (target.kind.kind === 'SelfSubjectAccessReview') return this.#reviewAccess(body as Json, user);
    if (target.kind.group === 'rbac.authorization.k8s.io' && exchange.method !== 'DELETE')
      this.#checkGrant(user, target, this.#commit(exchange, target, body, true).body as string);
    if (this.#policies) this.#review(exchange, target, body, user);
    return this.#commit(exchange, target, body);
  }

  #reviewAccess(body: Json, user: ApiUser): Answer {
    const { resourceAttributes } = body['spec'] as { resourceAttributes?: Record<string, string> };
    if (!resourceAttributes)
      throw new Refusal(
        422,
        'Invalid',
        'spec.resourceAttributes: exactly one of nonResourceAttributes or resourceAttributes must be specified',
      );
    return json(201, { ...body, status: this.#access.review(user, resourceAttributes) });
  }

  /** Throws if a user gives rights that the user lacks, in a role or by its binding. */
  #checkGrant(user: ApiUser, { kind, namespace }: Place, tried: string): void {
    const object = JSON.parse(tried) as Json & { metadata: { name: string }; rules?: Rule[] };
    const { kind: kindName, name = '' } = (object['roleRef'] ?? {}) as { kind?: string; name?: string };
    const role = { apiVersion: apiVersionOf(kind), kind: kindName, metadata: { name, namespace } };
    const place = kindName === undefined ? { kind, namespace, name: object.metadata.name } : this.#placeOf(role);
    const verb = kindName === undefined ? 'escalate' : 'bind';
    if (this.#access.allows(user, { verb, group: kind.group, resource: place.kind.resource, namespace, name })) return;
    const { rules = [] } = kindName === undefined ? object : (this.objects.demand(place) as { rules?: Rule[] });
    const lacking = rules.flatMap(rightsOf).filter((right) => !this.#access.allows(user, { ...right, namespace }));
    if (lacking.length === 0) return;
    const why = `user "${user.name}" is attempting to grant RBAC permissions not currently held: ${JSON.stringify(lacking)}`;
    throw new Refusal(403, 'Forbidden', `${kind.resource} "${object.metadata.name}" is forbidden: ${why}`);
  }

  /** Throws if a policy refuses a write. Tries the write first, and keeps nothing of it. */
  #review(exchange: Exchange, target: Place & { status: boolean }, body: unknown, { name, extra = {} }: ApiUser): void {
    const [policies = [], bindings = []] = ['ValidatingAdmissionPolicy', 'ValidatingAdmissionPolicyBinding']
      .map((each) => this.kinds.find(({ kind }) => kind === each))
      .map((kind) => kind && this.objects.list(kind, ''));
    const before = target.name === '' ? undefined : this.objects.get(target);
    const tried = this.#commit(exchange, target, body, true);
    const object = exchange.method === 'DELETE' ? null : (JSON.parse(tried.body as string) as Json);
    const { group } = target.kind;
    const resource = target.status ? `${target.kind.resource}/status` : target.kind.resource;
    const dryRun = exchange.query.get('dryRun') === 'All';
    const request = { group, resource, object, oldObject: before ?? null, namespace: target.namespace, dryRun };
    for (const policy of policies) {
      const binding = findBinding(policy, bindings);
      if (binding === undefined) continue;
      const [refusal] = evaluatePolicy(policy, { ...request, user: { username: name, extra } });
      if (refusal === undefined) continue;
      const { message, reason } = refusal;
      const words = `ValidatingAdmissionPolicy '${policy.metadata.name}' with binding '${binding}' denied request: ${message}`;
      throw new Refusal(policyStatus[reason] ?? 422, reason, `${resource} "${target.name}" is forbidden: ${words}`);
    }
  }

  #commit(exchange: Exchange, target: Place & { status: boolean }, body: unknown, dry = false): Answer {
    const { method, query, headers } = exchange;
    const manager = query.get('fieldManager') ?? (headers['user-agent'] ?? 'unknown').split('/')[0] ?? '';
    const writing: Writing = { manager, dryRun: dry || dryRun(query), status: target.status };
    if (method === 'DELETE') {
      const { preconditions, dryRun: asked } = isJson(body) ? body : {};
      // As in a real server, the query is ignored if there is a body.
      const isDry = dry || (isJson(body) ? Array.isArray(asked) && asked.includes('All') : writing.dryRun);
      const gone = this.objects.requestDeletion(target, isJson(preconditions) ? preconditions : {}, isDry);
      const details = {
        name: target.name,
        group: target.kind.group,
        kind: target.kind.resource,
        uid: gone.metadata.uid,
      };
      return json(200, { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', details });
    }
    if (method === 'PATCH') return this.#patch(exchange, target, body, writing);
    if (!isJson(body)) throw new Refusal(400, 'BadRequest', 'the body of the request is no object');
    checkIdentity(target, body);
    if (method === 'PUT') return json(200, this.objects.replace(target, body, writing));
    const { name, generateName } = body['metadata'] as { name?: string; generateName?: string };
    const made = name || (generateName === undefined ? '' : `${generateName}${this.objects.revision}`);
    if (made === '')
      throw new Refusal(
        422,
        'Invalid',
        `${target.kind.kind} "" is invalid: metadata.name: Required value: name or generateName is required`,
      );
    return json(201, this.objects.create({ ...target, name: made }, this.#admit(body), writing));
  }

  #patch(exchange: Exchange, target: Place & { status: boolean }, body: unknown, writing: Writing): Answer {
    const { query } = exchange;
    const type = mediaTypeOf(exchange);
    if (type === 'application/apply-patch+yaml') {
      if (!query.has('fieldManager'))
        throw new Refusal(
          400,
          'BadRequest',
          'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
        );
      if (!isJson(body)) throw new Refusal(400, 'BadRequest', 'the body of the request is no object');
      checkIdentity(target, body);
      const { object, created } = this.objects.apply(target, body, writing, query.get('force') === 'true');
      return json(created ? 201 : 200, object);
    }
    const before = this.objects.demand(target);
    const after =
      type === 'application/json-patch+json'
        ? jsonPatch(before, body as { op: string; path: string; value?: unknown }[])
        : mergePatch(before, body);
    if (!/^application\/(json-patch|merge-patch|strategic-merge-patch)\+json$/.test(type)) {
      throw new Refusal(415, 'UnsupportedMediaType', `the body of the request was in an unknown format: ${type}`);
    }
    return json(200, this.objects.replace(target, after as Json, writing));
  }

  #readingVerb({ query }: Exchange, name: string): 'get' | 'list' | 'watch' {
    if (query.get('watch') === 'true' || query.get('watch') === '1') return 'watch';
    return name === '' ? 'list' : 'get';
  }

  #resolve(path: string): Place & { status: boolean } {
    const match =
      /^\/(?:api\/(?<core>[^/]+)|apis\/(?<group>[^/]+)\/(?<version>[^/]+))(?:\/namespaces\/(?<namespace>[^/]+))?\/(?<resource>[^/]+)(?:\/(?<name>[^/]+))?(?:\/(?<sub>[^/]+))?$/.exec(
        path,
      );
    // A namespace is itself an object: /api/v1/namespaces/x and /api/v1/namespaces/x/status.
    const own = /^\/api\/v1\/namespaces(?:\/(?<name>[^/]+))?(?:\/(?<sub>status|finalize))?$/.exec(path);
    const parts: Record<string, string | undefined> = own
      ? { core: 'v1', resource: 'namespaces', ...own.groups }
      : { ...match?.groups };
    const { core, group = '', version: named, namespace = '', resource, name = '', sub } = parts;
    const kind = this.kinds.find(
      (known) => known.group === group && known.version === (core ?? named) && known.resource === resource,
    );
    if (!kind || (sub !== undefined && !(sub === 'status' && kind.status)) || (namespace !== '' && !kind.namespaced)) {
      throw new Refusal(404, 'NotFound', 'the server could not find the requested resource');
    }
    return { kind, namespace, name, status: sub === 'status' };
  }

  #placeOf(object: Json): Place {
    const { name, namespace = '' } = object['metadata'] as { name: string; namespace?: string };
    const kind = this.kinds.find(
      (known) => known.kind === object['kind'] && apiVersionOf(known) === object['apiVersion'],
    );
    if (!kind) throw new Error(`this server has no ${String(object['kind'])} of ${String(object['apiVersion'])}`);
    return { kind, namespace: kind.namespaced ? namespace || 'default' : '', name };
  }
}

/** Starts an API server on its own port. */
export async function startApiServer(options: ApiServerOptions = {}): Promise<TestApiServer> {
  const server = new TestApiServer(options);
  await server.start();
  return server;
}

function clusterVersion(openshift: string): Json {
  const image = `quay.io/openshift-release-dev/ocp-release@sha256:${'1'.repeat(64)}`;
  const completionTime = '2026-01-01T00:00:00Z';
  const history = [{ state: 'Completed', version: openshift, image, verified: true, completionTime }];
  return {
    apiVersion: 'config.openshift.io/v1',
    kind: 'ClusterVersion',
    metadata: { name: 'version' },
    spec: {
      channel: `stable-${openshift.split('.').slice(0, 2).join('.')}`,
      clusterID: '6b8a0a7c-0000-4000-8000-000000000000',
    },
    status: { desired: { version: openshift, image }, history, availableUpdates: null },
  };
}

function checkIdentity({ kind, namespace, name }: Place, body: Json): void {
  const { metadata, apiVersion, kind: stated } = body;
  const wanted = apiVersionOf(kind);
  if (apiVersion !== wanted || stated !== kind.kind) {
    throw new Refusal(
      400,
      'BadRequest',
      `the object provided is a ${String(stated)} of ${String(apiVersion)}, not a ${kind.kind} of ${wanted}`,
    );
  }
  const { name: own, namespace: ownNamespace } = (metadata ?? {}) as { name?: string; namespace?: string };
  if (name !== '' && own !== undefined && own !== name) {
    throw new Refusal(
      400,
      'BadRequest',
      `the name of the object (${own}) does not match the name on the URL (${name})`,
    );
  }
  if (ownNamespace !== undefined && ownNamespace !== '' && ownNamespace !== namespace) {
    throw new Refusal(
      400,
      'BadRequest',
      'the namespace of the provided object does not match the namespace sent on the request',
    );
  }
}

function dryRun(query: URLSearchParams): boolean {
  const asked = query.get('dryRun');
  if (asked !== null && asked !== 'All')
    throw new Refusal(422, 'Invalid', `dryRun: Unsupported value: "${asked}": supported values: "All"`);
  return asked === 'All';
}

/** The accepted media types of JSON and YAML bodies. Clients without a media type send JSON. */
const jsonTypes =
  /^(|application\/(json|yaml|apply-patch\+yaml|(json-patch|merge-patch|strategic-merge-patch)\+json))$/;

/** Returns the media type of a body, without its parameters. */
function mediaTypeOf({ headers }: Exchange): string {
  return (headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase() ?? '';
}

/** The largest bodies of kube-apiserver and of etcd, in bytes. */
const [requestLimit, storageLimit] = [3 * 1024 * 1024, 1.5 * 1024 * 1024];

async function readJson(exchange: Exchange): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of exchange.body()) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  if (bytes.length === 0) return undefined;
  if (bytes.length > requestLimit)
    throw new Refusal(413, 'RequestEntityTooLarge', `Request entity too large: limit is ${requestLimit}`);
  if (bytes.length > storageLimit) throw new Refusal(500, 'InternalError', 'etcdserver: request is too large');
  const type = mediaTypeOf(exchange);
  if (type === protobufType) return readProtobuf(bytes);
  if (!jsonTypes.test(type)) {
    throw new Refusal(415, 'UnsupportedMediaType', `the body of the request was in an unknown format - ${type}`);
  }
  const text = bytes.toString();
  try {
    // Almost all bodies are JSON, also those of the type YAML, and the parser of YAML takes many times as long.
    return JSON.parse(text) as unknown;
  } catch {
    return readYaml(text);
  }
}

function readYaml(text: string): unknown {
  const [document] = parseAllDocuments(text);
  if (!document || document.errors.length > 0)
    throw new Refusal(400, 'BadRequest', 'the body of the request cannot be decoded');
  return document.toJS() as unknown;
}
