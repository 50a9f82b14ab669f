import { readFile } from 'node:fs/promises';
import type { Cluster } from '../cluster/client.ts';
import { ignoring } from '../errors.ts';
import { parseJson } from '../content/oci/syntax.ts';
import { pathOnHost, type Host } from '../node/machine/host.ts';
import { mirrorStateFile } from '../node/machine/paths.ts';
import { parseMirrorState, readReport, reportKind, type MirrorState } from './nodeReport.ts';

/** The state of the mirror of a node. */
export interface NodeMirror extends MirrorState {
  readonly node: string;
}

/** Reads the state of the mirror of this node, which its server writes; undefined if it has none. */
export async function readMirrorState(host: Host): Promise<MirrorState | undefined> {
  try {
    return parseMirrorState(parseJson(await readFile(pathOnHost(host, mirrorStateFile), 'utf8')));
  } catch {
    return undefined;
  }
}

/**
 * Lists the states of all mirrors from the reports of agents; none if the user may not read reports. Throws other errors
 * of the cluster.
 */
export async function listMirrorStates(cluster: Cluster): Promise<NodeMirror[]> {
  const { apiVersion, kind, ...options } = reportKind;
  const leases = await cluster.list(apiVersion, kind, options).catch(ignoring('denied'));
  const reports = (leases ?? []).flatMap((lease) => readReport(lease) ?? []);
  return reports.flatMap(({ node, report }) => (report?.mirror ? [{ node, ...report.mirror }] : []));
}
