import { createHash, randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Executable } from '../../../lib/update/install/executable.ts';
import { connectTo, type ConnectedCluster } from '../../support/cluster.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { TestKubelets } from '../kubernetes/apiNodes.ts';
import type { Json } from '../kubernetes/apiPatch.ts';
import { startApiServer, type ApiServerOptions, type TestApiServer } from '../kubernetes/apiServer.ts';
import { furnish, platformImage, workload } from './site.ts';

/** A site whose nodes are folders. Tests can install agents on it. */
export interface AgentSite extends ConnectedCluster {
  readonly server: TestApiServer;
  readonly kubelets: TestKubelets;
  readonly folder: string;
  /** A stand-in for an executable. No test runs it. */
  readonly executable: Executable;
  rootOf(node: string): string;
  /** Returns a condition: that agents are ready on this number of nodes, and that a later survey of them has begun. */
  surveyed(ready: number): () => boolean;
}

/** The nodes of a site, as `furnish` creates them. */
export const siteNodes = ['master-0', 'worker-0', 'worker-1'];

/** Creates a site of three nodes with machine config daemons and kubelets. */
export async function openAgentSite(options: ApiServerOptions = { openshift: '4.19.3' }): Promise<AgentSite> {
  const folder = await makeFolder();
  const server = await startApiServer(options);
  furnish(server);
  const namespace = 'openshift-machine-config-operator';
  const spec = { containers: [{ name: 'machine-config-daemon', image: platformImage('d') }] };
  server.put(workload('DaemonSet', 'machine-config-daemon', namespace, { template: { spec } }));
  const rootOf = (node: string): string => join(folder, node);
  for (const node of siteNodes) {
    await mkdir(rootOf(node));
    server.nodeRoots.set(node, rootOf(node));
  }
  const kubelets = new TestKubelets(server);
  const connected = await connectTo(server);
  const countSurveys = (): number => server.requests.filter(({ path }) => path.endsWith('/pods')).length;
  const surveyed = (ready: number): (() => boolean) => {
    let before: number | undefined;
    return () => {
      const status = server.find('apps/v1', 'DaemonSet', 'agent', 'oc-upgrade-bundle')?.['status'] as Json | undefined;
      if (status?.['numberReady'] === ready) before ??= countSurveys();
      return before !== undefined && countSurveys() > before;
    };
  };
  const close = async (): Promise<void> => {
    await kubelets.stop();
    await connected.close();
    await server.stop();
    await removeFolder(folder);
  };
  return {
    ...connected,
    server,
    kubelets,
    folder,
    rootOf,
    surveyed,
    executable: await makeExecutable(join(folder, 'executable')),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Writes a file with the header of an executable for amd64. */
export async function makeExecutable(path: string, size = 300_000): Promise<Executable> {
  const header = Buffer.from('7f454c46020101000000000000000000030000003e000000', 'hex').subarray(0, 20);
  header.writeUInt16LE(62, 18);
  const content = Buffer.concat([header, randomBytes(size - header.length)]);
  await writeFile(path, content);
  return { path, architecture: 'amd64', size, digest: createHash('sha256').update(content).digest('hex') };
}
