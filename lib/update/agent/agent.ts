import type { VerifyTrust } from '../../bundle/signatureCheck.ts';
import type { Context } from '../../context.ts';
import { BundleCache } from './bundleCache.ts';
import { AgentImages } from './agentImages.ts';
import { AgentLoop } from './agentLoop.ts';
import { AgentMedia, type AgentMediaOptions } from './agentMedia.ts';
import { AgentPeers, connectToPeers } from './agentPeers.ts';
import { AgentServer, type AgentServerOptions } from './agentServer.ts';
import type { Cluster } from '../../kubernetes/client.ts';

/** What an agent is, and what it works with. */
export interface AgentSettings {
  /** The name of its node. */
  readonly node: string;
  readonly media: AgentMediaOptions;
  readonly server: AgentServerOptions;
  /** The folder for copies of bundles and what is known of them, as a path for this process. */
  readonly folder: string;
  readonly trust: VerifyTrust;
  /** Bytes to leave free where images are kept; by default 16 GiB, or 15 % of the file system where that is more. */
  readonly floor: number | undefined;
  /** Milliseconds between two looks at media and cluster, more or less. */
  readonly interval: number;
}

/**
 * Is the agent of one node until the signal ends it: finds bundles, verifies the one that is allowed, gives it to other nodes, loads
 * its images, and says how far it is. Nothing of a bundle is ever run. It can be killed at any point, and goes on from the cluster and its
 * disk. Throws `busy` where another agent runs, and what listening throws; whatever fails later is tried again.
 */
export async function runAgent(cluster: Cluster, options: AgentSettings, context: Context): Promise<void> {
  const { node, media: where, server: listen, folder, trust, floor, interval } = options;
  const connections = connectToPeers(listen.token);
  const closing: (() => Promise<void>)[] = [];
  try {
    const server = await AgentServer.open(listen, context);
    closing.push(() => server.close());
    const media = await AgentMedia.open(where, context);
    closing.push(() => media.close());
    const tools = {
      cache: new BundleCache(folder, trust),
      images: new AgentImages(where.host, floor),
      peers: new AgentPeers(cluster, node, connections),
      server,
      messages: () => media.complaints.slice(0, 3),
    };
    const loop = new AgentLoop(cluster, { node, media, tools, interval }, context);
    closing.push(() => loop.close());
    await loop.run();
  } finally {
    for (const close of closing.toReversed()) await close();
    connections.close();
  }
}
