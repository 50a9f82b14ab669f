/** Reports that a drive carries back, and the fleet that they describe. */
export { lastUpdateOf, listSiteProblems, summarizeFleet, type FleetMember } from './report/fleet.ts';
export { findReports, readReportKeyFile, type FoundReport, type ReportTrust } from './report/reportFiles.ts';
export { loadReportKey, readReportKey, reportKeyFolder } from './report/reportKey.ts';
