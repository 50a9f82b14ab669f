import type { ApiObject, ApiObjects, Place } from './apiObjects.ts';
import type { Json } from './apiPatch.ts';
import { Refusal } from './apiStatus.ts';

/** Deletes a pod if every PodDisruptionBudget that selects it allows a disruption; else refuses with 429. */
export function evictPod(
  objects: ApiObjects,
  place: Place,
  budgets: readonly ApiObject[],
  preconditions: Json = {},
): void {
  const { labels = {} } = objects.demand(place).metadata as { labels?: Readonly<Record<string, string>> };
  const budget = budgets.find(({ spec, status }) => {
    const { selector } = spec as { selector: { matchLabels: Readonly<Record<string, string>> } };
    const { disruptionsAllowed } = status as { disruptionsAllowed: number };
    return (
      disruptionsAllowed < 1 && Object.entries(selector.matchLabels).every(([key, value]) => labels[key] === value)
    );
  });
  if (budget) {
    const words = `Cannot evict pod as it would violate the pod's disruption budget. (${budget.metadata.name})`;
    throw new Refusal(429, 'TooManyRequests', words);
  }
  objects.requestDeletion(place, preconditions, false);
}
