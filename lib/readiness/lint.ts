/** Checks of manifests and images for what fails without a registry. */
export { containerLists, readContainers } from './lint/container.ts';
export { isByDigest, normalizeImage } from './lint/image.ts';
export {
  atLeast,
  evaluateReport,
  fails,
  type LintReport,
  type LintResult,
  lintSets,
  makeBaseline,
  readBaseline,
} from './lint/lint.ts';
export { readManifestSets } from './lint/manifestSource.ts';
export { keyOfFinding } from './lint/report.ts';
export { allRules, pullAlwaysExpression, volumePullsAlwaysExpression } from './lint/rules.ts';
