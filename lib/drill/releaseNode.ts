import type { Cluster } from '#cluster/client';
import type { MergePatch, Written } from '#config/manifest';
import {
  lastDrillAnnotation,
  readRunningDrill,
  runningDrillAnnotation,
  type DrillRecord,
  type RunningDrill,
} from '#readiness/preflight';

/** Returns the reference of a Node. */
export function nodeReference(name: string) {
  return { apiVersion: 'v1', kind: 'Node', metadata: { name } } as const;
}

/** The change that uncordons a node. */
export const uncordon: MergePatch<Written<'Node'>> = { spec: { unschedulable: null } };

/** Marks a node as one with a drill, and cordons it if the drill says so, in one write. */
export async function claimNode(cluster: Cluster, name: string, drill: RunningDrill): Promise<void> {
  const cordon: MergePatch<Written<'Node'>> = { spec: { unschedulable: true } };
  await cluster.patch(nodeReference(name), {
    metadata: { annotations: { [runningDrillAnnotation]: JSON.stringify(drill) } },
    ...(drill.cordoned && cordon),
  } satisfies MergePatch<Written<'Node'>>);
}

/**
 * Ends the drill of a node in its Node object, in one write: removes the mark, uncordons the node if the drill has
 * cordoned it, and records the end. Does nothing without a mark. `describe` gets the drill that was running.
 */
export async function releaseNode(
  cluster: Cluster,
  name: string,
  describe: (drill: RunningDrill) => DrillRecord,
): Promise<void> {
  const node = await cluster.read(nodeReference(name));
  const drill = node && readRunningDrill(node);
  if (!drill) return;
  const annotations = { [runningDrillAnnotation]: null, [lastDrillAnnotation]: JSON.stringify(describe(drill)) };
  await cluster.patch(nodeReference(name), {
    metadata: { annotations },
    ...(drill.cordoned && uncordon),
  } satisfies MergePatch<Written<'Node'>>);
}
