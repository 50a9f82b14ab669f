import { deriveBearerToken } from '#content/http';
import { serveContent, type ContentServer, type ServedFile } from '#content/server';
import type { Context } from '#context';
import type { MirrorState } from '../record/nodeReport.ts';
import { nodePhases, type NodeProgress } from '../record/upgradeBundle.ts';

/** The state of an agent for a monitoring system. */
export interface AgentState {
  readonly progress: NodeProgress;
  /** Seconds since the agent last wrote its report into the cluster; undefined before the first time. */
  readonly reportAge: number | undefined;
  /** The state of the mirror of the node, if it has one. */
  readonly mirror?: MirrorState | undefined;
}

/** Where an agent serves its metrics. */
export interface MetricsOptions {
  readonly host: string;
  readonly port: number;
  /** The secret of all agents, from which the token of clients is derived. */
  readonly token: string;
}

/** The media type of the Prometheus text format. */
const type = 'text/plain; version=0.0.4; charset=utf-8';

/** Returns the bearer token that clients of the metrics need. It reveals nothing about the secret of the agents. */
export function metricsToken(secret: string): string {
  return deriveBearerToken(secret, 'metrics');
}

/**
 * Serves the state of an agent at `/metrics` by plain HTTP, for clients with the token. Prometheus knows no pre-shared
 * keys, so the agents’ own secret is not sent. `read` returns undefined before the first round. Throws the errors of
 * serveContent.
 */
export function serveMetrics(
  read: () => AgentState | undefined,
  { host, port, token }: MetricsOptions,
  context: Context,
): Promise<ContentServer> {
  const get = (path: string): ServedFile | undefined =>
    path === '/metrics' ? asFile(formatMetrics(read())) : undefined;
  return serveContent(() => undefined, { host, port, token: metricsToken(token), files: { get } }, context);
}

function asFile(text: string): ServedFile {
  const bytes = Buffer.from(text);
  const chunks = async function* (start: number, size: number) {
    yield await Promise.resolve(bytes.subarray(start, start + size));
  };
  return { size: bytes.length, type, chunks };
}

/** Formats the state of an agent in the Prometheus text format. */
export function formatMetrics(state: AgentState | undefined): string {
  const { progress, reportAge, mirror } = state ?? {};
  const phases = nodePhases.map((phase) => [`{phase="${phase}"}`, progress?.phase === phase ? 1 : 0] as const);
  return [
    metric('node_phase', 'Whether the node is in a phase.', progress ? phases : []),
    metric('images', 'Images of the allowed bundle.', [['', progress?.imagesTotal]]),
    metric('images_loaded', 'Images of the allowed bundle in the image store.', [['', progress?.imagesLoaded]]),
    metric('content_bytes', 'Bytes of the allowed bundle on the node.', [['', progress?.bytes]]),
    metric('free_bytes', 'Free bytes on the file system of the images.', [['', progress?.free]]),
    metric('mirror_releases', 'Releases that the mirror of the node serves.', [['', mirror?.versions.length]]),
    metric('mirror_requests', 'Images that clients got from the mirror of the node.', [['', mirror?.requests]]),
    metric('mirror_missing_images', 'Images that the mirror of the node lacks.', [['', mirror?.lacking.length]]),
    metric('report_age_seconds', 'Time since the last report of the agent.', [['', reportAge]]),
  ].join('');
}

function metric(
  name: string,
  help: string,
  samples: readonly (readonly [labels: string, value: number | undefined])[],
): string {
  const full = `upgrade_bundle_${name}`;
  const lines = samples.flatMap(([labels, value]) => (value === undefined ? [] : [`${full}${labels} ${value}\n`]));
  return [`# HELP ${full} ${help}\n`, `# TYPE ${full} gauge\n`, ...lines].join('');
}
