import type { BundleMetadata } from '#bundle/metadata';
import type { Cluster } from '#cluster/client';
import { ignoring } from '#errors';
import { fieldsOf, textOf } from '#fields';
import { isOlder } from '#release/version';
import { agentSet } from './agentSurvey.ts';

const versionKey = 'upgrade-bundle.openshift.io/version';
const formatsKey = 'upgrade-bundle.openshift.io/bundle-formats';

// A record, so that a new format must be added.
const ownFormats: Record<BundleMetadata['formatVersion'], true> = { 1: true, 2: true };

/** What `install` recorded about the agents of a cluster. */
export interface AgentVersion {
  /** The version of the program that installed them. */
  readonly version: string;
  /** The formats of metadata.json that they read. */
  readonly formats: readonly number[];
}

/** Returns the annotations that record a version for readAgentVersion. */
export function recordVersion(version: string): Record<string, string> {
  return { [versionKey]: version, [formatsKey]: Object.keys(ownFormats).join(',') };
}

/**
 * Reads the record of the agents; undefined without agents or a record, or if the user may not read them. Throws the
 * errors of reading.
 */
export async function readAgentVersion(cluster: Cluster): Promise<AgentVersion | undefined> {
  const agents = await cluster.read(agentSet).catch(ignoring('denied', 'not-served'));
  if (!agents) return undefined;
  const annotations = fieldsOf(agents.metadata.annotations);
  const [version, formats] = [textOf(annotations[versionKey]), textOf(annotations[formatsKey])];
  return version === undefined || formats === undefined
    ? undefined
    : { version, formats: formats.split(',').map(Number) };
}

/** Describes how the agents differ from a program of a version, with what to do; undefined if they do not. */
export function compareAgents({ version }: AgentVersion, own: string): string | undefined {
  const advice = 'to update them, run oc adm-upgrade-bundle install with its former options';
  if (isOlder(version, own)) return `the agents (${version}) are older than this program (${own}): ${advice}`;
  if (!isOlder(own, version)) return undefined;
  return `the agents (${version}) are newer than this program (${own}), which may not know what they report: use ${version} here too`;
}
