import { expect } from 'chai';
import { AgentImages } from '../../../lib/update/agent/agentImages.ts';
import { AgentLoop } from '../../../lib/update/agent/agentLoop.ts';
import { AgentPeers, connectToPeers } from '../../../lib/update/agent/agentPeers.ts';
import { AgentServer, readyPath } from '../../../lib/update/agent/agentServer.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { node } from '../../fakes/cluster/site.ts';
import { startCluster } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
const trust = { keyrings: [], fingerprints: [], allowUnsigned: false, fetchFile };
const token = '0123456789abcdef0123';

/** A running agent whose rounds a test begins. */
interface SteppedAgent extends AsyncDisposable {
  /** Whether the API server allows it to read UpgradeBundles. */
  isAllowed: boolean;
  /** Begins a round, waits for its end, and returns the HTTP status of the readiness afterwards. */
  readinessAfterRound(): Promise<number>;
  /** Closes all connections, as a server that goes away. */
  endWatches(): void;
}

async function startAgent(): Promise<SteppedAgent> {
  const allow = ({ resource }: { resource: string }): boolean => agent.isAllowed || resource !== 'upgradebundles';
  const connected = await startCluster({ openshift: '4.19.3', tokens: new Map([['t', 'agent']]), allow });
  const folder = await makeFolder();
  const context = makeContext();
  for (const name of ['oc-upgrade-bundle', 'oc-upgrade-bundle-reports'])
    connected.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  connected.server.put(upgradeBundleDefinition());
  connected.server.put(node('worker-0', 'worker'));
  const executable = { digest: 'abc', path: process.execPath, port: 0 };
  const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token, executable }, context);
  const connections = connectToPeers(token);
  const host = { root: folder, environment: {} };
  const tools = {
    server,
    cache: new BundleCache(folder, trust),
    images: new AgentImages(host, 0),
    peers: new AgentPeers(connected.cluster, 'worker-0', connections),
  };
  // Each round ends with a wait for media.
  const waits: (() => void)[] = [];
  let endRound: () => void = () => undefined;
  const media = {
    unusable: new Map<never, never>(),
    find: () => Promise.resolve([]),
    wait: () =>
      new Promise<void>((resolve) => {
        waits.push(resolve);
        endRound();
      }),
  };
  const loop = new AgentLoop(connected.cluster, { node: 'worker-0', media, tools, interval: 1 }, context);
  let running: Promise<void> | undefined;
  const agent: SteppedAgent = {
    isAllowed: false,
    endWatches: () => {
      connected.server.dropConnections();
    },
    readinessAfterRound: async () => {
      const ended = new Promise<void>((resolve) => (endRound = resolve));
      if (running) waits.shift()?.();
      else running = loop.run();
      await ended;
      return (await fetch(new URL(readyPath, server.executableOrigin))).status;
    },
    [Symbol.asyncDispose]: async () => {
      context.interrupt();
      waits.shift()?.();
      await running;
      await loop.close();
      await server.close();
      connections.close();
      await removeFolder(folder);
      await connected[Symbol.asyncDispose]();
    },
  };
  return agent;
}

describe('the loop of an agent', () => {
  it('is ready while it reaches the API server, and only then', async () => {
    await using agent = await startAgent();
    expect(await agent.readinessAfterRound()).to.equal(404);
    agent.isAllowed = true;
    expect(await agent.readinessAfterRound()).to.equal(200);
    agent.isAllowed = false;
    agent.endWatches();
    await until(async () => (await agent.readinessAfterRound()) === 404);
  });
});
