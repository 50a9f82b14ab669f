import type { Finding } from '#cluster/finding';
import type { StoredObject } from '#cluster/objects';
import { parseJson } from '#content/oci';
import { nameSome } from '#errors';
import { fieldsOf, textOf } from '#fields';

/** The annotation of a Node on which a drill is running: a RunningDrill as JSON. */
export const runningDrillAnnotation = 'upgrade-bundle.openshift.io/drill';

/** The annotation of a Node with the end of its last drill: a DrillRecord as JSON. */
export const lastDrillAnnotation = 'upgrade-bundle.openshift.io/last-drill';

/** The drill that runs on a node, as an annotation of the Node records it. */
export interface RunningDrill {
  /** The start, and the time at which the node ends it by itself, in ISO 8601. */
  readonly started: string;
  readonly until: string;
  readonly reboot: boolean;
  /** Whether the drill has cordoned the node. */
  readonly cordoned: boolean;
}

/** The result of a drill of one node. */
export type DrillOutcome = 'passed' | 'failed' | 'interrupted';

/** The end of the last drill of a node, as an annotation of the Node records it for auditors. */
export interface DrillRecord {
  readonly result: DrillOutcome;
  readonly started: string;
  readonly ended: string;
  readonly reboot: boolean;
  /** The OpenShift version that the cluster ran. */
  readonly version?: string;
  /** The number of pods that ran on the node, and of pods that did not run again. */
  readonly pods?: number;
  readonly missing?: number;
  /** The number of images that a registry was asked for. */
  readonly images?: number;
  /** The reason of a failure. */
  readonly message?: string;
}

/** Reads the drill that runs on a node; undefined if none does. */
export function readRunningDrill(node: StoredObject): RunningDrill | undefined {
  const { started, until, reboot, cordoned } = readAnnotation(node, runningDrillAnnotation) ?? {};
  if (started === undefined) return undefined;
  return {
    started: textOf(started) ?? '',
    until: textOf(until) ?? '',
    reboot: reboot === true,
    cordoned: cordoned === true,
  };
}

/** Reads when the last drill of a node was, and how it ended; undefined if there was none. */
function readLastDrill(node: StoredObject): Pick<DrillRecord, 'result' | 'ended' | 'reboot' | 'message'> | undefined {
  const { result, ended, reboot, message } = readAnnotation(node, lastDrillAnnotation) ?? {};
  if (result !== 'passed' && result !== 'failed' && result !== 'interrupted') return undefined;
  const words = textOf(message)?.slice(0, 500);
  return {
    result,
    ended: textOf(ended) ?? '',
    reboot: reboot === true,
    ...(words !== undefined && { message: words }),
  };
}

const advice = {
  passed: 'Run a drill again after each update: oc adm-upgrade-bundle drill.',
  failed: 'Do what the report of the drill says, then run it again: oc adm-upgrade-bundle drill NODE.',
};

/** Reports when the last drills of the nodes were, and how they ended. */
export function checkDrills(nodes: readonly StoredObject[]): Finding[] {
  const drills = nodes.flatMap((node) => {
    const drill = readLastDrill(node);
    return drill ? [{ name: node.metadata.name, drill }] : [];
  });
  const bad = drills.flatMap(({ name, drill: { result, ended, message } }): Finding[] => {
    if (result === 'passed') return [];
    const summary = `the last drill ${result === 'failed' ? 'failed' : 'was interrupted'} on ${dayOf(ended)}`;
    const words = message === undefined ? summary : `${summary}: ${message}`;
    return [{ ...own, severity: 'warning', subject: { kind: 'Node', name }, message: words, advice: advice.failed }];
  });
  const good = drills.filter(({ drill }) => drill.result === 'passed');
  const first = good.toSorted((a, b) => (a.drill.ended < b.drill.ended ? 1 : -1))[0];
  if (!first) return bad;
  const message =
    `drills passed on ${good.length} of ${nodes.length} nodes (${nameSome(good.map(({ name }) => name))}), the ` +
    'last on ' +
    `${dayOf(first.drill.ended)}${first.drill.reboot ? ' with a reboot' : ''}`;
  return [...bad, { ...own, severity: 'info', subject: { kind: 'Node', name: '' }, message, advice: advice.passed }];
}

const own = { check: 'drills' } as const;

function dayOf(time: string): string {
  return time.slice(0, 10);
}

function readAnnotation({ metadata }: StoredObject, key: string) {
  const text = textOf(fieldsOf(metadata.annotations)[key]);
  if (text === undefined) return undefined;
  try {
    return fieldsOf(parseJson(text));
  } catch {
    // Anyone who may edit nodes may have written it.
    return undefined;
  }
}
