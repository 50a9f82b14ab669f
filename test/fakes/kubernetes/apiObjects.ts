import { randomUUID } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { isDeepStrictEqual } from 'node:util';
import { applyFields, noteUpdate } from './apiFields.ts';
import { apiVersionOf, type ApiKind } from './apiKinds.ts';
import { isJson, type Json } from './apiPatch.ts';
import { checkDeclared, shapeBySchema } from './apiSchema.ts';
import { Refusal } from './apiStatus.ts';
import { decode, validate } from './apiValidation.ts';

/** A stored object. */
export interface ApiObject extends Json {
  apiVersion: string;
  kind: string;
  metadata: Json & { name: string; namespace?: string; uid: string; resourceVersion: string };
}

/** A change of an object, for watches. */
export interface Change {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly revision: number;
  readonly kind: ApiKind;
  readonly object: ApiObject;
  /** The object before it was modified. A watch with a selector may have told of only one of them. */
  readonly before?: ApiObject;
}

/** The place of an object: its kind, its namespace ('' for none), its name. */
export interface Place {
  readonly kind: ApiKind;
  readonly namespace: string;
  readonly name: string;
}

/** Options of a write. */
export interface Writing {
  readonly manager: string;
  readonly dryRun: boolean;
  /** Write only `status`; otherwise everything else. */
  readonly status?: boolean;
  /** When it was created; by default now. */
  readonly created?: Date;
}

/** The objects of one API server, with one revision counter for all, and the history for watches. Emits `change`. */
export class ApiObjects extends EventEmitter<{ change: [Change] }> {
  /** The latest revision. */
  revision = 1000;
  /** The changes in the history, oldest first. */
  history: Change[] = [];
  /** Lists and watches from before this revision get 410. */
  oldest = 0;
  readonly #objects = new Map<string, { kind: ApiKind; object: ApiObject }>();
  /** The objects of each kind, which a list need not search for among all. */
  readonly #byKind = new Map<string, Map<string, ApiObject>>();

  constructor() {
    super();
    // Every watch listens.
    this.setMaxListeners(0);
  }

  /** Returns an object; undefined if it does not exist. Callers must not change it. */
  get({ kind, namespace, name }: Place): ApiObject | undefined {
    return this.#objects.get(keyOf(kind, namespace, name))?.object;
  }

  /** Returns an object. Throws 404 if it does not exist. */
  demand(place: Place): ApiObject {
    const found = this.get(place);
    if (found) return found;
    const { kind, name } = place;
    throw new Refusal(404, 'NotFound', `${qualified(kind)} "${name}" not found`, {
      name,
      group: kind.group,
      kind: kind.resource,
    });
  }

  /** Lists the wanted objects of a kind, of one namespace or ('') of all, sorted by namespace and name. */
  list(
    { group, resource }: ApiKind,
    namespace: string,
    isWanted: (object: ApiObject) => boolean = () => true,
  ): ApiObject[] {
    return [...this.#ofKind(group, resource).values()]
      .filter((object) => (namespace === '' || object.metadata.namespace === namespace) && isWanted(object))
      .sort((a, b) => (sortKey(a) < sortKey(b) ? -1 : 1));
  }

  #ofKind(group: string, resource: string): Map<string, ApiObject> {
    const key = `${group}/${resource}`;
    const found = this.#byKind.get(key) ?? new Map<string, ApiObject>();
    this.#byKind.set(key, found);
    return found;
  }

  /** Creates an object. Throws 404 without its namespace, 422 if it is invalid, then 409 if it exists. */
  create(place: Place, body: Json, { manager, dryRun, created = new Date() }: Writing): ApiObject {
    const { kind, namespace, name } = place;
    this.#demandNamespace(place);
    this.#demandDefinition(place);
    const { status, ...rest } = structuredClone(body);
    const object = shape(kind, {
      ...rest,
      ...(!kind.status && status !== undefined && { status }),
      apiVersion: apiVersionOf(kind),
      kind: kind.kind,
      metadata: {
        ...(body['metadata'] as Json),
        name,
        ...(namespace !== '' && { namespace }),
        uid: randomUUID(),
        resourceVersion: '',
        generation: 1,
        creationTimestamp: created.toISOString().replace(/\.\d+/, ''),
      },
    });
    validate(kind, object);
    if (this.get(place)) {
      const details = { name, group: kind.group, kind: kind.resource };
      throw new Refusal(409, 'AlreadyExists', `${qualified(kind)} "${name}" already exists`, details);
    }
    if (!entries(body)) noteUpdate(undefined, object, { manager }, kind.schema);
    return this.#store('ADDED', place, object, dryRun);
  }

  /**
   * Replaces an object. Throws 409 if its resourceVersion or uid is outdated. Without a change, there is no new
   * revision.
   */
  replace(place: Place, body: Json, writing: Writing): ApiObject {
    const before = this.demand(place);
    const stated = body['metadata'] as Partial<ApiObject['metadata']> | undefined;
    if (place.kind.custom && !stated?.resourceVersion) {
      const field = 'metadata.resourceVersion';
      const message = 'Invalid value: 0: must be specified for an update';
      const words = `${qualified(place.kind)} "${place.name}" is invalid: ${field}: ${message}`;
      throw new Refusal(422, 'Invalid', words, { causes: [{ field, message }] });
    }
    this.#checkCurrent(place, before, stated);
    const after = shape(place.kind, this.#carryOver(place.kind, before, body, writing));
    validate(place.kind, after, before);
    noteUpdate(before, after, writing, place.kind.schema);
    return this.#storeChanged(place, before, after, writing.dryRun);
  }

  /**
   * Server-side apply: creates the object, or sets the stated fields. Changes the status only if the status is written.
   */
  apply(place: Place, body: Json, writing: Writing, force: boolean): { object: ApiObject; created: boolean } {
    const { kind } = place;
    const before = writing.status ? this.demand(place) : this.get(place);
    const { status, ...rest } = body;
    const { apiVersion, kind: stated, metadata } = body;
    if (kind.schema) checkDeclared(kind.schema, body);
    const part = writing.status ? { apiVersion, kind: stated, metadata, status } : kind.status ? rest : body;
    if (!before) {
      const made = applyFields({ apiVersion, kind: stated, metadata: {} }, part, writing, force, kind.schema);
      return { object: this.create(place, made, writing), created: true };
    }
    this.#checkCurrent(place, before, metadata as Partial<ApiObject['metadata']>);
    const after = shape(kind, applyFields(before, part, writing, force, kind.schema) as ApiObject);
    validate(kind, after, before);
    return { object: this.#storeChanged(place, before, after, writing.dryRun), created: false };
  }

  /**
   * Deletes an object for a client. A namespace or a definition stays until its objects are gone, and a pod on a node
   * until its kubelet has ended it. All happen after this call.
   */
  requestDeletion(place: Place, preconditions: Json, dryRun: boolean): ApiObject {
    const object = this.demand(place);
    const isRunning = place.kind.kind === 'Pod' && (object['spec'] as Json | undefined)?.['nodeName'] !== undefined;
    if (dryRun || !(isRunning || isContainer(place.kind))) return this.delete(place, preconditions, dryRun);
    this.#checkCurrent(place, object, preconditions);
    const { uid } = object.metadata;
    setImmediate(() => {
      if (this.get(place)?.metadata.uid === uid) this.delete(place, {}, false);
    });
    return this.#markDeleted(place, object);
  }

  /**
   * Deletes an object at once, and with a namespace or a definition all its objects. An object with finalizers stays,
   * marked as deleted, and so do its namespace and its definition.
   */
  delete(place: Place, preconditions: Json, dryRun: boolean): ApiObject {
    const object = this.demand(place);
    this.#checkCurrent(place, object, preconditions);
    if (dryRun) return object;
    const content = this.#contentOf(place.kind, object);
    for (const { kind, object: other } of content) {
      const { name, namespace = '' } = other.metadata;
      this.delete({ kind, namespace, name }, {}, false);
    }
    // It went with the last of them.
    if (content.length > 0 && !this.get(place)) return object;
    const finalizers = object.metadata['finalizers'] as unknown[] | undefined;
    if ((finalizers && finalizers.length > 0) || this.#contentOf(place.kind, object).length > 0)
      return this.#markDeleted(place, object);
    const key = keyOf(place.kind, place.namespace, place.name);
    this.#objects.delete(key);
    this.#ofKind(place.kind.group, place.kind.resource).delete(key);
    this.revision += 1;
    const gone = { ...object, metadata: { ...object.metadata, resourceVersion: String(this.revision) } };
    this.#tell({ type: 'DELETED', revision: this.revision, kind: place.kind, object: gone });
    for (const { kind, object: around } of this.#containersOf(place))
      if (isLeaving(around) && this.#contentOf(kind, around).length === 0)
        this.delete({ kind, namespace: '', name: around.metadata.name }, {}, false);
    return gone;
  }

  /** Returns the namespace of an object, and its definition. */
  #containersOf({ kind, namespace }: Place): { kind: ApiKind; object: ApiObject }[] {
    const definition = `apiextensions.k8s.io/customresourcedefinitions//${kind.resource}.${kind.group}`;
    return [`/namespaces//${namespace}`, definition].flatMap((key) => this.#objects.get(key) ?? []);
  }

  /** Returns the objects in a namespace, or those of a definition. */
  #contentOf({ kind: container }: ApiKind, { metadata, spec }: ApiObject): { kind: ApiKind; object: ApiObject }[] {
    const all = [...this.#objects.values()];
    if (container === 'Namespace') return all.filter(({ object }) => object.metadata.namespace === metadata.name);
    if (container !== 'CustomResourceDefinition') return [];
    const { group, names } = spec as { group: string; names: { plural: string } };
    return all.filter(({ kind }) => kind.group === group && kind.resource === names.plural);
  }

  #markDeleted(place: Place, object: ApiObject): ApiObject {
    if (object.metadata['deletionTimestamp'] !== undefined) return object;
    const deletionTimestamp = new Date().toISOString().replace(/\.\d+/, '');
    const marked = { ...object, metadata: { ...object.metadata, deletionTimestamp } };
    const status = isContainer(place.kind) && { status: statusOfLeaving(object) };
    return this.#store('MODIFIED', place, { ...marked, ...status }, false);
  }

  /** Forgets all earlier changes, as etcd does after five minutes. Requests for them get 410. */
  compact(): void {
    this.history = [];
    this.oldest = this.revision;
  }

  #demandNamespace({ kind, namespace, name }: Place): void {
    if (namespace === '') return;
    const found = this.#objects.get(`/namespaces//${namespace}`)?.object;
    if (found?.metadata['deletionTimestamp'] !== undefined) {
      const why = `unable to create new content in namespace ${namespace} because it is being terminated`;
      const causes = [{ reason: 'NamespaceTerminating', message: why, field: 'metadata.namespace' }];
      throw new Refusal(403, 'Forbidden', `${qualified(kind)} "${name}" is forbidden: ${why}`, { name, causes });
    }
    if (found) return;
    const details = { name: namespace, kind: 'namespaces' };
    throw new Refusal(404, 'NotFound', `namespaces "${namespace}" not found`, details);
  }

  /** Refuses new objects of a definition that is being deleted. */
  #demandDefinition(place: Place): void {
    const definition = this.#containersOf(place).find(({ kind }) => kind.kind === 'CustomResourceDefinition');
    if (!definition || !isLeaving(definition.object)) return;
    const why = 'create not allowed while custom resource definition is terminating';
    throw new Refusal(403, 'Forbidden', `${qualified(place.kind)} "${place.name}" is forbidden: ${why}`);
  }

  #checkCurrent({ kind, name }: Place, before: ApiObject, stated: Partial<ApiObject['metadata']> | undefined): void {
    const { resourceVersion, uid } = stated ?? {};
    const current = before.metadata;
    if ((!resourceVersion || resourceVersion === current.resourceVersion) && (!uid || uid === current.uid)) return;
    const why = 'the object has been modified; please apply your changes to the latest version and try again';
    const message = `Operation cannot be fulfilled on ${qualified(kind)} "${name}": ${why}`;
    throw new Refusal(409, 'Conflict', message, { name, group: kind.group, kind: kind.resource });
  }

  #carryOver(kind: ApiKind, before: ApiObject, body: Json, { status }: Writing): ApiObject {
    const next = structuredClone(body);
    if (status) return { ...structuredClone(before), ...('status' in next && { status: next['status'] }) };
    const { uid, creationTimestamp, generation, deletionTimestamp } = before.metadata;
    const kept = { uid, creationTimestamp, generation, ...(deletionTimestamp !== undefined && { deletionTimestamp }) };
    const { managedFields } = before.metadata;
    const metadata = { ...(next['metadata'] as ApiObject['metadata']), ...kept, managedFields };
    const { apiVersion, kind: kindName } = before;
    const after: ApiObject = { ...next, apiVersion, kind: kindName, metadata };
    if (!kind.status) return after;
    const { status: _stated, ...rest } = after;
    return { ...rest, ...('status' in before && { status: before['status'] }) };
  }

  #storeChanged(place: Place, before: ApiObject, after: ApiObject, dryRun: boolean): ApiObject {
    if (isDeepStrictEqual(timeless(before), timeless(after))) return before;
    const [wanted, had] = [after, before].map(({ metadata: _, status: __, ...content }) => content);
    const generation = Number(before.metadata['generation'] ?? 1) + (isDeepStrictEqual(wanted, had) ? 0 : 1);
    const stored = this.#store('MODIFIED', place, { ...after, metadata: { ...after.metadata, generation } }, dryRun);
    const [held, holds] = [before, stored].map(
      ({ metadata }) => (metadata['finalizers'] as unknown[] | undefined) ?? [],
    );
    if (!dryRun && stored.metadata['deletionTimestamp'] && held?.length && !holds?.length)
      this.delete(place, {}, false);
    return stored;
  }

  #store(type: 'ADDED' | 'MODIFIED', { kind, namespace, name }: Place, object: ApiObject, dryRun: boolean): ApiObject {
    const revision = this.revision + 1;
    const resourceVersion = dryRun && type === 'ADDED' ? '' : String(dryRun ? this.revision : revision);
    const { resourceVersion: _, ...metadata } = object.metadata;
    const stored = { ...object, metadata: { ...metadata, ...(resourceVersion && { resourceVersion }) } } as ApiObject;
    if (dryRun) return stored;
    const before = this.get({ kind, namespace, name });
    this.revision = revision;
    const key = keyOf(kind, namespace, name);
    this.#objects.set(key, { kind, object: stored });
    this.#ofKind(kind.group, kind.resource).set(key, stored);
    this.#tell({ type, revision, kind, object: stored, before });
    return stored;
  }

  #tell(change: Change): void {
    this.history.push(change);
    this.emit('change', change);
  }
}

/** Returns whether objects of a kind have other objects, which are deleted with them. */
function isContainer({ kind }: ApiKind): boolean {
  return kind === 'Namespace' || kind === 'CustomResourceDefinition';
}

/** Returns the status of a namespace or a definition that is being deleted. */
function statusOfLeaving({ kind, status }: ApiObject): Json {
  if (kind === 'Namespace') return { phase: 'Terminating' };
  const { conditions = [] } = (status ?? {}) as { conditions?: Json[] };
  const leaving = { type: 'Terminating', status: 'True', reason: 'InstanceDeletionInProgress' };
  return {
    ...(status as Json | undefined),
    conditions: [...conditions, { ...leaving, message: 'CustomResource deletion is in progress' }],
  };
}

function isLeaving({ metadata }: ApiObject): boolean {
  return metadata['deletionTimestamp'] !== undefined;
}

function shape(kind: ApiKind, object: ApiObject): ApiObject {
  if (!kind.schema) return decode(kind, object);
  // Every object has these three, whether its schema names them or not.
  const { apiVersion, kind: name, metadata } = object;
  return { ...(shapeBySchema(kind.schema, object) as Json), apiVersion, kind: name, metadata };
}

function entries(body: Json): boolean {
  const { managedFields } = isJson(body['metadata']) ? body['metadata'] : {};
  return Array.isArray(managedFields) && managedFields.length > 0;
}

function keyOf({ group, resource }: ApiKind, namespace: string, name: string): string {
  return `${group}/${resource}/${namespace}/${name}`;
}

function sortKey({ metadata }: ApiObject): string {
  return `${metadata.namespace ?? ''}/${metadata.name}`;
}

/** Returns an object without the fields that change even if the content does not. */
function timeless({ metadata: { resourceVersion: _, managedFields, ...metadata }, ...content }: ApiObject): object {
  const managers = (managedFields as Json[] | undefined)
    ?.map(({ time: __, ...entry }) => entry)
    // Their order is not significant.
    .toSorted((a, b) =>
      `${String(a['manager'])} ${String(a['operation'])}` < `${String(b['manager'])} ${String(b['operation'])}`
        ? -1
        : 1,
    );
  return { ...content, metadata: { ...metadata, managers } };
}

/** Returns the name of a kind in messages: `imagedigestmirrorsets.config.openshift.io`. */
export function qualified({ group, resource }: Pick<ApiKind, 'group' | 'resource'>): string {
  return group === '' ? resource : `${resource}.${group}`;
}
