/** Changes of a registry: plan, upgrade, rollback, uninstall. */
export { formatCheckTimer } from './change/checkTimer.ts';
export type { ExecutionRequest } from './change/openRegistry.ts';
export { isUpToDate, type UpgradePlan } from './change/plan.ts';
export {
  abandonChange,
  changeCertificates,
  dropBackups,
  findRevertible,
  findUnfinished,
  planRollback,
  rollBackRegistry,
  type Revertible,
  type RollbackPlan,
  type Unfinished,
} from './change/rollback.ts';
export { forecastUpgrade, surveyHost, type Forecast } from './change/survey.ts';
export {
  locateInstallation,
  planUninstall,
  uninstallRegistry,
  type UninstallPlan,
  type UninstallRequest,
} from './change/uninstall.ts';
export { upgradeRegistry } from './change/upgrade.ts';
export { timeOf, type UpgradeJournal } from './change/upgradeJournal.ts';
