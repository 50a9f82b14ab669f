/** Backups of a registry, and restoring them. */
export { backUpRegistry, planBackup, type BackupPlan } from './backup/backup.ts';
export { planRestore, restoreBackup, type RestorePlan } from './backup/restore.ts';
