import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Bundle } from '#bundle/open';
import { serveBundle, type BundleServer } from '#bundle/serve';
import { writeAtomically } from '#content/files';
import { type Digest, parseReference } from '#content/oci';
import type { ServedResponse } from '#content/server';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { pathOnHost, type Host, mirrorFile, registriesFile } from '../machine/host.ts';
import { listFolder, readIfThere, readToml, stringsOf } from './storageConfig.ts';

/** The number of different requests to count. */
const mostCounted = 10_000;

/** The settings of a mirror. */
export interface RuntimeMirrorOptions {
  readonly host: Host;
  /** 0 for any free port. */
  readonly port: number;
  /** Additional registries or repositories to mirror. */
  readonly also: readonly string[];
  /** The names of the images, from the signed payload. */
  readonly tags: ReadonlyMap<string, Digest>;
}

/** A request to the mirror, and how often it was sent. */
export interface RuntimeMirrorRequest extends Omit<ServedResponse, 'address'> {
  readonly count: number;
}

/** A running mirror. */
export interface Mirror {
  readonly server: BundleServer;
  /** The repositories that the drop-in redirects. */
  readonly prefixes: readonly string[];
  /** All requests, in the order of their first occurrence. */
  requests(): RuntimeMirrorRequest[];
  /** Removes the drop-in, and stops the server. */
  close(): Promise<void>;
}

/**
 * Serves a bundle to this machine, and writes the drop-in that makes container runtimes ask it first for the
 * repositories of the bundle. Logs and counts each request: they show what still needs a registry. Throws `conflict` if
 * another file configures the same repositories, as it does on nodes that pull from mirrors on the control plane,
 * `invalid-reference`, `not-writable`, and the errors of serving.
 */
export async function startMirror(bundle: Bundle, options: RuntimeMirrorOptions, context: Context): Promise<Mirror> {
  const { host, port, also, tags } = options;
  const own = [bundle.metadata.release, ...bundle.metadata.images].map((pullspec) => {
    const { registry, repository } = parseReference(pullspec);
    return `${registry}/${repository}`;
  });
  const prefixes = [...new Set([...own, ...also])].sort();
  await refuseOthers(host, prefixes);
  const counted = new Map<string, RuntimeMirrorRequest>();
  const onResponse = ({ method, path, status, client }: ServedResponse): void => {
    const key = [method, path, status, client].join(' ');
    // A client that sends different requests must not fill the memory.
    if (counted.size < mostCounted || counted.has(key))
      counted.set(key, { method, path, status, client, count: (counted.get(key)?.count ?? 0) + 1 });
    context.log('info', `${status < 400 ? 'answered' : 'NOT answered'}: ${method} ${path} → ${status} (${client})`);
  };
  const server = await serveBundle(bundle, { host: '127.0.0.1', port, onResponse, tags }, context);
  const path = pathOnHost(host, mirrorFile);
  try {
    // Runtimes read only files that end in .conf, so none reads a partial file.
    await writeAtomically(path, formatDropIn(prefixes, server.port, 'mirror, which removes it when it ends'));
  } catch (error) {
    await server.close();
    throw error;
  }
  return {
    server,
    prefixes,
    requests: () => [...counted.values()],
    close: async () => {
      await rm(path, { force: true });
      await server.close();
    },
  };
}

/**
 * Redirects the container runtimes of a machine for some repositories to a server on the machine, which the caller
 * runs. Returns whether the runtimes must read their configuration again. Throws `conflict` as startMirror, and
 * `not-writable`.
 */
export async function redirectRuntimes(host: Host, repositories: readonly string[], port: number): Promise<boolean> {
  const prefixes = [...new Set(repositories)].sort();
  await refuseOthers(host, prefixes);
  const text = formatDropIn(prefixes, port, 'its agent, which removes it when the UpgradeBundle is gone');
  if ((await readIfThere(host, mirrorFile)) === text) return false;
  await writeAtomically(pathOnHost(host, mirrorFile), text);
  return true;
}

/** Throws `conflict` if the configuration of a machine says where one of these repositories is. */
export async function refuseOthers(host: Host, prefixes: readonly string[]): Promise<void> {
  for (const path of [registriesFile, ...(await listFolder(host, dirname(mirrorFile)))]) {
    if (path === mirrorFile) continue;
    const values = readToml((await readIfThere(host, path)) ?? '', path);
    const listed = ['registry.prefix', 'registry.location'].flatMap((key) => stringsOf(values, key) ?? []);
    const both = prefixes.find((prefix) => listed.includes(prefix));
    if (both === undefined) continue;
    const own = await findClusterMirror(host, stringsOf(values, 'registry.mirror.location') ?? []);
    if (own !== undefined) {
      throw new PluginError('conflict', `this node pulls ${both} from the mirrors of the cluster already (${own}, …)`, {
        hint:
          'To let them serve the bundle: oc adm-upgrade-bundle apply. To see what nodes request: oc ' +
          'adm-upgrade-bundle status. To give it to this node alone: oc adm-upgrade-bundle load.',
      });
    }
    throw new PluginError('conflict', `${path} says where ${both} is, and would not count beside a mirror of it here`, {
      hint: 'If that mirror still answers, none is needed here. Otherwise remove it first.',
    });
  }
}

/** Returns the mirror of the control plane among some mirrors: nodes have the CA of its `localhost` as a file. */
async function findClusterMirror(host: Host, mirrors: readonly string[]): Promise<string | undefined> {
  for (const name of new Set(mirrors.flatMap((mirror) => /^localhost:\d+(?=\/)/.exec(mirror) ?? [])))
    if ((await readIfThere(host, `/etc/containers/certs.d/${name}/ca.crt`)) !== undefined) return name;
  return undefined;
}

function formatDropIn(prefixes: readonly string[], port: number, writer: string): string {
  const tables = prefixes.map((prefix) => {
    const slash = prefix.indexOf('/');
    const mirror = `127.0.0.1:${port}${slash < 0 ? '' : prefix.slice(slash)}`;
    return (
      `[[registry]]\nprefix = ${JSON.stringify(prefix)}\nlocation = ${JSON.stringify(prefix)}\n` +
      `[[registry.mirror]]\nlocation = ${JSON.stringify(mirror)}\ninsecure = true\n`
    );
  });
  return `# Written by oc adm-upgrade-bundle: ${writer}.\n${tables.join('\n')}`;
}
