import type { StoredObject } from '../../cluster/fields.ts';
import { normalizeImage } from '../lint/image.ts';
import type { DrillRequest } from '../../node/runtime/drillRegistry.ts';
import { judgePod, readPodImages, type DrillPod, type Expectation, type PodImages } from './drillPods.ts';

/** A pod, and its owner as `ReplicaSet/router-5d8`. */
export interface PodName {
  readonly namespace: string;
  readonly name: string;
  readonly owner: string;
}

/** An image that a registry was asked for. */
export interface RequestedImage {
  readonly image: string;
  readonly count: number;
  /** The time of the first request in ISO 8601. */
  readonly first: string;
  /** The user agents that asked. */
  readonly clients: readonly string[];
  /** The pods of the node that use the image; empty if none does. */
  readonly pods: readonly PodName[];
}

/** What happened to a pod in a drill. */
export interface PodResult extends PodName {
  /** The time from the restart until it ran again, in seconds; undefined if it does not run. */
  readonly seconds: number | undefined;
  /** Why it does not run. */
  readonly message?: string;
}

/** What a drill has found about the pods and images of a node. */
export class DrillReport {
  /** The pods that have to run again. */
  readonly pods: readonly DrillPod[];
  requests: readonly DrillRequest[] = [];
  readonly #running = new Map<DrillPod, number>();
  readonly #reasons = new Map<DrillPod, string>();
  /** Every pod of the node, by its namespace and name. */
  readonly #seen = new Map<string, PodImages>();
  #begun = performance.now();

  constructor(pods: readonly DrillPod[]) {
    this.pods = pods;
    for (const pod of pods) this.#seen.set(`${pod.namespace}/${pod.name}`, pod);
  }

  /** Notes the restart, from which times count. */
  begin(): void {
    this.#begun = performance.now();
  }

  /** Notes the present pods of the cluster. */
  note(present: readonly StoredObject[], node: string, expectation: Expectation): void {
    const seconds = Math.round((performance.now() - this.#begun) / 100) / 10;
    for (const pod of readPodImages(present, node)) this.#seen.set(`${pod.namespace}/${pod.name}`, pod);
    for (const pod of this.pods) {
      const obstacle = judgePod(pod, present, this.pods, node, expectation);
      // A pod that crashes later does not run again.
      if (obstacle !== undefined) this.#running.delete(pod);
      else if (!this.#running.has(pod)) this.#running.set(pod, seconds);
      this.#reasons.set(pod, obstacle ?? '');
    }
  }

  /** The pods that do not run again. */
  get missing(): readonly DrillPod[] {
    return this.pods.filter((pod) => !this.#running.has(pod));
  }

  /** The time from the restart until the last pod ran again, in seconds. */
  get seconds(): number {
    return Math.max(0, ...this.#running.values());
  }

  results(): PodResult[] {
    return this.pods.map((pod) => {
      const seconds = this.#running.get(pod);
      const reason = this.#reasons.get(pod);
      return { ...nameOf(pod), seconds, ...(seconds === undefined && reason !== undefined && { message: reason }) };
    });
  }

  /** The images that a registry was asked for, by the order of the first requests. */
  get asked(): RequestedImage[] {
    return [...Map.groupBy(this.requests, ({ image }) => normalizeImage(image))].map(([image, group]) => ({
      ...{ image, count: group.length, first: group[0]?.time ?? '' },
      clients: [...new Set(group.map(({ client }) => client))],
      pods: [...this.#seen.values()].filter(({ images }) => images.some((own) => isSame(own, image))).map(nameOf),
    }));
  }
}

function nameOf({ namespace, name, owner }: PodName): PodName {
  return { namespace, name, owner };
}

/** Of a registry that nothing named before, only the end of its name is known. */
function isSame(own: string, asked: string): boolean {
  if (!asked.startsWith('*.')) return own === asked;
  const [end = '', ...path] = asked.slice(1).split('/');
  const [registry = '', ...ownPath] = own.split('/');
  return registry.endsWith(end) && path.join('/') === ownPath.join('/');
}
