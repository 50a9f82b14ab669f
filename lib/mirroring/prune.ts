/** Removal of what no release in use needs, and the guard of what does. */
export { pruneTarget, type PruneOutcome } from './prune/prune.ts';
export { guardCopies } from './prune/pruneGuard.ts';
export type { EvaluatedRelease } from './prune/prunePlan.ts';
