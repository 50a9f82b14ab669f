import type { UpdateReport } from '#config/updateReport';
import { withoutAbsent } from '#fields';
import type { FoundReport } from './reportFiles.ts';

/** What the reports of a folder say of one cluster, or why a file says nothing. Times are of RFC 3339. */
export interface FleetMember {
  readonly file: string;
  /** The ID of the cluster; absent for a file that cannot be used. */
  readonly cluster?: string;
  readonly version?: string;
  readonly nodes?: number;
  /** The last update: its version, phase, end, and duration in seconds. */
  readonly update?: LastUpdate;
  /** What needs attention, the most important first. */
  readonly problems: readonly string[];
  /** The smallest free space for images of a node, in bytes. */
  readonly free?: number;
  /** When the report was made by the clock of the cluster, its number, and its age in seconds. */
  readonly created?: string;
  readonly sequence?: number;
  readonly age?: number;
  /** The fingerprint of the key that signed it, and whether that key was given as trusted. */
  readonly signer?: string;
  readonly trusted?: boolean;
}

/** The last update of a cluster by its report. Times are of RFC 3339. */
export interface LastUpdate {
  readonly version: string;
  readonly phase: string;
  readonly started?: string;
  readonly ended?: string;
  /** Seconds from the request of the update to its end. */
  readonly duration?: number;
}

/**
 * Summarizes the reports of a fleet: one entry for each cluster and key, of its newest report, sorted by the number of
 * problems. Files that cannot be used are entries too. Keeps no report in memory. `now`: milliseconds since 1970.
 */
export async function summarizeFleet(
  reports: AsyncIterable<FoundReport> | Iterable<FoundReport>,
  now: number,
): Promise<FleetMember[]> {
  const newest = new Map<string, FleetMember>();
  const broken: FleetMember[] = [];
  for await (const found of reports) {
    const member = describeMember(found, now);
    const key = `${member.cluster ?? ''} ${member.signer ?? ''}`;
    const before = newest.get(key);
    if (member.cluster === undefined) broken.push(member);
    else if (!before || (before.age ?? 0) > (member.age ?? 0)) newest.set(key, member);
  }
  const clusters = Map.groupBy(newest.values(), ({ cluster }) => cluster);
  const members = [...clusters.values()].flatMap((own) =>
    own.length > 1 ? own.map((each) => contest(each, own)) : own,
  );
  const nameOf = ({ cluster = '' }: FleetMember): string => cluster;
  return [
    ...members.toSorted((a, b) => b.problems.length - a.problems.length || nameOf(a).localeCompare(nameOf(b))),
    ...broken,
  ];
}

function contest(member: FleetMember, { length }: readonly FleetMember[]): FleetMember {
  const words = `${length} keys sign reports of this cluster: compare their fingerprints`;
  return { ...member, problems: [words, ...member.problems] };
}

function describeMember({ where, opened, problem }: FoundReport, now: number): FleetMember {
  if (!opened) return { file: where, problems: [problem?.message ?? ''] };
  const { report, signer, trusted } = opened;
  const { cluster, created, sequence, site } = report;
  const frees = site.nodes.flatMap(({ free }) => free ?? []);
  return {
    file: where,
    cluster,
    version: site.version,
    nodes: site.nodes.length,
    ...withoutAbsent({ update: lastUpdateOf(report) }),
    problems: listSiteProblems(report),
    ...(frees.length > 0 && { free: Math.min(...frees) }),
    created,
    sequence,
    age: Math.round((now - Date.parse(created)) / 1000),
    signer,
    trusted,
  };
}

/** Returns the last update of a report: by the record, with the times of the version operator. */
export function lastUpdateOf({ updates, site }: UpdateReport): LastUpdate | undefined {
  const [last] = updates.filter(({ phase }) => phase !== 'Detected');
  const version = last?.version ?? site.history[0]?.version;
  if (version === undefined) return undefined;
  const entry = site.history.find((each) => each.version === version);
  const { started, completed: ended } = entry ?? {};
  const seconds = Math.round((Date.parse(ended ?? '') - Date.parse(started ?? '')) / 1000);
  const duration = Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined;
  const phase = last?.phase ?? (ended === undefined ? 'Upgrading' : 'Completed');
  return { version, phase, ...withoutAbsent({ started, ended, duration }) };
}

/** Lists what needs attention at a site: a failed or stopped update, and the blockers of preflight. */
export function listSiteProblems({ reason, updates, site }: UpdateReport): string[] {
  const [newest] = updates;
  const because = newest?.conditions.find(({ type, status }) =>
    reason === 'Failed' ? type === 'Updated' && status === 'False' : type === 'Stalled' && status === 'True',
  );
  const ended =
    reason === 'Failed' || reason === 'Stopped'
      ? [`the update ${reason === 'Failed' ? 'failed' : 'stands still'}: ${because?.message ?? 'no reason is stated'}`]
      : [];
  const blockers = site.findings.filter(({ severity }) => severity === 'blocker');
  return [...ended, ...blockers.map(({ object, message }) => `${object} ${message}`)];
}
