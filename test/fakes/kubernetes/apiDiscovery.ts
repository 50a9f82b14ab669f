import { apiVersionOf, type ApiKind } from './apiKinds.ts';

const verbs = ['create', 'delete', 'get', 'list', 'patch', 'update', 'watch'];

/**
 * Returns the response to a discovery path (`/api`, `/apis`, `/api/v1`, `/apis/GROUP`, `/apis/GROUP/VERSION`);
 * undefined for another path or an unknown group.
 */
export function discover(kinds: readonly ApiKind[], path: string): object | undefined {
  if (path === '/api') return { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs: [] };
  if (path === '/apis') return { kind: 'APIGroupList', apiVersion: 'v1', groups: describeGroups(kinds) };
  const [, group, served] = /^\/apis\/([^/]+)(?:\/([^/]+))?$/.exec(path) ?? [];
  if (group !== undefined && served === undefined) {
    const found = describeGroups(kinds).find(({ name }) => name === group);
    return found && { kind: 'APIGroup', apiVersion: 'v1', ...found };
  }
  const groupVersion = group === undefined ? /^\/api\/([^/]+)$/.exec(path)?.[1] : `${group}/${String(served)}`;
  if (groupVersion === undefined) return undefined;
  const resources = kinds.filter((kind) => apiVersionOf(kind) === groupVersion).flatMap(describeKind);
  if (resources.length === 0) return undefined;
  return { kind: 'APIResourceList', apiVersion: 'v1', groupVersion, resources };
}

function describeGroups(kinds: readonly ApiKind[]) {
  const named = kinds.filter(({ group }) => group !== '');
  return [...Map.groupBy(named, ({ group }) => group)].map(describeGroup);
}

function describeGroup([name, kinds]: [string, ApiKind[]]) {
  const versions = [...new Set(kinds.map(({ version }) => version))].map((version) => ({
    groupVersion: `${name}/${version}`,
    version,
  }));
  return { name, versions, preferredVersion: versions[0] };
}

function describeKind({ resource, kind, namespaced, status }: ApiKind): object[] {
  const described = { name: resource, singularName: kind.toLowerCase(), namespaced, kind };
  return [
    { ...described, verbs, storageVersionHash: '' },
    ...(status
      ? [{ ...described, name: `${resource}/status`, singularName: '', verbs: ['get', 'patch', 'update'] }]
      : []),
  ];
}
