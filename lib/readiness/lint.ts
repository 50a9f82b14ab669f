/** Checks of manifests and images for what fails without a registry. */
export { containerLists, readContainers } from './lint/container.ts';
export { isByDigest, normalizeImage } from './lint/image.ts';
export { atLeast, lintSets, type LintReport } from './lint/lint.ts';
export { fails, evaluateReport, makeBaseline, readBaseline, type LintResult } from './lint/lint.ts';
export { readManifestSets } from './lint/manifestSource.ts';
export { keyOfFinding } from './lint/report.ts';
export { allRules, pullAlwaysExpression, volumePullsAlwaysExpression } from './lint/rules.ts';
