import { join } from 'node:path';
import type { Json } from '../kubernetes/apiPatch.ts';

/** The arguments and files that a pod gives to its program. Files are by path. */
export interface AgentPod {
  readonly args: readonly string[];
  readonly files: ReadonlyMap<string, string>;
}

/** Reads the arguments and files of the pods of a DaemonSet. */
export function readPod(set: Json): AgentPod {
  const { template } = set['spec'] as { template: PodTemplate };
  const { containers, volumes } = template.spec;
  const [{ args = [], volumeMounts } = { volumeMounts: [] }] = containers;
  const files = volumes.flatMap(({ name, downwardAPI }) => {
    const folder = volumeMounts.find((mount) => mount.name === name)?.mountPath ?? '';
    return (downwardAPI?.items ?? []).map(({ path, fieldRef }): [string, string] => {
      const annotation = /^metadata\.annotations\['(.+)'\]$/.exec(fieldRef.fieldPath)?.[1] ?? '';
      return [join(folder, path), template.metadata.annotations[annotation] ?? ''];
    });
  });
  return { args, files: new Map(files) };
}

interface PodTemplate {
  readonly metadata: { readonly annotations: Readonly<Record<string, string>> };
  readonly spec: {
    readonly containers: readonly {
      readonly args?: readonly string[];
      readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
    }[];
    readonly volumes: readonly {
      readonly name: string;
      readonly downwardAPI?: {
        readonly items: readonly { readonly path: string; readonly fieldRef: { readonly fieldPath: string } }[];
      };
    }[];
  };
}
