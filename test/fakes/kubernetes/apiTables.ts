import type { ApiKind } from './apiKinds.ts';
import { listObjects } from './apiLists.ts';
import type { ApiObject, ApiObjects } from './apiObjects.ts';
import { isJson } from './apiPatch.ts';

/**
 * Returns a list in the form that `oc get` requests: cells, with the metadata of each object unless `includeObject` is
 * `None`.
 */
export function tabulateObjects(objects: ApiObjects, kind: ApiKind, namespace: string, query: URLSearchParams): object {
  const { items, metadata } = listObjects(objects, kind, namespace, query) as {
    items: Pick<ApiObject, 'metadata'>[];
    metadata: object;
  };
  return tabulate(items, metadata, kind, query);
}

/** Returns one object in the form that a watch of `oc get` receives. */
export function tabulateObject(item: Pick<ApiObject, 'metadata'>, kind: ApiKind, query: URLSearchParams): object {
  return tabulate([item], { resourceVersion: item.metadata.resourceVersion }, kind, query);
}

function tabulate(
  items: readonly Pick<ApiObject, 'metadata'>[],
  metadata: object,
  kind: ApiKind,
  query: URLSearchParams,
): object {
  const columns = kind.columns ?? [{ name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' }];
  const named = { name: 'Name', type: 'string', format: 'name', description: '', priority: 0 };
  return {
    kind: 'Table',
    apiVersion: 'meta.k8s.io/v1',
    metadata,
    columnDefinitions: [
      named,
      ...columns.map(({ name, type, priority = 0 }) => ({ name, type, format: '', description: '', priority })),
    ],
    rows: items.map((item) => ({
      cells: [item.metadata.name, ...columns.map(({ type, jsonPath }) => cellOf(item, jsonPath, type))],
      ...(query.get('includeObject') !== 'None' && {
        object: { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata: item.metadata },
      }),
    })),
  };
}

/** Returns the value for a cell; nothing if its type differs from the column’s. */
function cellOf(item: object, path: string, type: string): unknown {
  const value = path
    .split('.')
    .slice(1)
    .reduce<unknown>((at, field) => (isJson(at) ? at[field] : undefined), item);
  return typeof value === (type === 'integer' ? 'number' : 'string') ? value : null;
}
