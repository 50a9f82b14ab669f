import type { VerifyTrust } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import type { Context } from '#context';
import { readMirrorState } from '../record/nodeReport.ts';
import { AgentBackup } from './agentBackup.ts';
import { AgentImages } from './agentImages.ts';
import { AgentLoop } from './agentLoop.ts';
import { AgentMedia, type AgentMediaOptions } from './agentMedia.ts';
import { serveMetrics } from './agentMetrics.ts';
import { AgentPeers, connectToPeers } from './agentPeers.ts';
import { AgentScreen, type AgentScreenOptions } from './agentScreen.ts';
import { AgentServer, type AgentServerOptions } from './agentServer.ts';
import { BundleCache } from './bundleCache.ts';
import { DriveReports } from './driveReports.ts';
import { ImageServing } from './imageServing.ts';

/** Settings of a node agent. */
export interface AgentSettings {
  /** The name of the agent’s node. */
  readonly node: string;
  readonly media: AgentMediaOptions;
  readonly server: AgentServerOptions;
  /** The port of the metrics, at the host of `server`; undefined serves none. */
  readonly metricsPort?: number;
  /** The folder for copies of bundles and their facts, as a path in the file system of this process. */
  readonly folder: string;
  readonly trust: VerifyTrust;
  /** Whether reports of the cluster are written onto drives with a verified bundle. */
  readonly reports: boolean;
  /** Bytes to leave free on the file system of the images; by default 16 GiB, or 15 % of it if that is more. */
  readonly floor: number | undefined;
  readonly screen: AgentScreenOptions;
  /** The average pause between two checks of the media and the cluster, in milliseconds. */
  readonly interval: number;
}

/**
 * Runs the agent of one node until the signal is aborted. The agent finds bundles, verifies the allowed one, offers it
 * to other nodes, loads its images and reports. It never runs content of a bundle. It may be killed at any point,
 * because its state is in the cluster and on the disk. Throws `busy` if another agent runs, and the errors of
 * listening; retries later failures.
 */
export async function runAgent(cluster: Cluster, options: AgentSettings, context: Context): Promise<void> {
  const { node, media: where, server: listen, metricsPort, folder, trust, floor, screen: shown, interval } = options;
  const connections = connectToPeers(listen.token);
  const closing: (() => Promise<void>)[] = [];
  try {
    const server = await AgentServer.open(listen, context);
    closing.push(() => server.close());
    const media = await AgentMedia.open(where, context);
    closing.push(() => media.close());
    const cache = new BundleCache(folder, trust);
    const reports = options.reports ? new DriveReports(cluster, media, cache, interval, context) : undefined;
    const tools = {
      cache,
      images: new AgentImages(where.host, floor),
      backup: new AgentBackup(cluster, where.host, context),
      peers: new AgentPeers(cluster, node, connections),
      server,
      serving: new ImageServing(where.host, listen.executable?.digest ?? ''),
      messages: () => [...media.problems.slice(0, 3), ...(reports?.problems ?? [])],
    };
    const mirror = () => readMirrorState(where.host);
    const screen = new AgentScreen(where.host, shown);
    const loop = new AgentLoop(cluster, { node, media, reports, tools, mirror, screen, interval }, context);
    closing.push(() => loop.close());
    if (metricsPort !== undefined) {
      const metrics = await serveMetrics(() => loop.state, { ...listen, port: metricsPort }, context);
      closing.push(() => metrics.close());
    }
    await loop.run();
  } finally {
    for (const close of closing.toReversed()) await close();
    connections.close();
  }
}
