import { openBundle } from '#bundle/open';
import { planUpdate, type UpdatePlan } from '#bundle/verify';
import type { Cluster } from '#cluster/client';
import { nameSubject, type Finding, isOpenBlocker, nameIgnore, requireIgnorable, severityOf } from '#cluster/finding';
import { formatSiteReport, formatSiteText } from '#config/siteReport';
import { writeAtomically } from '#content/files';
import { sumSizes } from '#content/oci';
import type { Context } from '#context';
import { PluginError } from '#errors';
import {
  refuseHostedControlPlane,
  runPreflight,
  type Preflight,
  surveyCluster,
  isOwnMirrorSet,
  type ClusterSurvey,
  readSite,
} from '#readiness/preflight';
import { shellWord, Lines } from '#text';
import { addAgentTrust } from '#update/install';
import { checkMirrors, checkQuota, mirrorPort } from '#update/mirror';
import { readReportKey } from '#update/report';
import { openRegistries, tool, openCluster } from '../cli/access.ts';
import { warnOfRisksIn } from '../cli/bundleFacts.ts';
import { defineCommand } from '../cli/command.ts';
import { formatCount, formatTable } from '../cli/format.ts';
import { clusterAccessOptions, outputOption, registryOptions } from '../cli/options.ts';
import { offlineTrustOf, offlineTrustOptions } from '../cli/trust.ts';
import { formatPreflightPage } from './report/findingsPage.ts';

/** The number of findings of one kind that the table shows. */
const shown = 10;

const { 'pull-secret': pullSecret, insecure } = registryOptions;

const options = {
  'pull-secret': pullSecret,
  insecure,
  export: {
    type: 'string',
    describe: 'Write a report of the site to this file, for create --for',
    suggest: 'paths',
  },
  text: {
    type: 'boolean',
    needs: ['export'],
    describe: 'With --export, write a short form that can be typed: version, architecture, free space, operators',
  },
  mirror: {
    type: 'boolean',
    describe:
      'Also check what install --mirror needs (always checked if it is installed), and ask each installed mirror',
  },
  ignore: {
    type: 'string',
    repeatable: true,
    describe: 'Do not count the blockers of this check, or of this check and object, such as drains:NAME',
    check: requireIgnorable,
  },
  ...outputOption('html'),
  ...offlineTrustOptions,
  ...clusterAccessOptions,
} as const;

/** `preflight`: checks whether a cluster can boot and update without a registry. */
export const command = defineCommand({
  details:
    'Checks the version, the operators, the pools and the nodes of the cluster, and every workload. With a bundle it ' +
    'also checks the release in it. Changes nothing. Each finding says what to do; a blocker would keep the cluster ' +
    'from booting or updating. The exit code is 1 if there is a blocker. The rights of cluster-reader suffice, with ' +
    'three additions. The right for nodes/proxy shows how much space is free, and listing Secrets of the control ' +
    'plane when certificates expire. Creating pods shows, in a dry run, whether the cluster makes every pod pull its ' +
    'images. If the cluster has mirrors and image policies, the mirrors are asked for the sigstore signatures that ' +
    'the policies demand.',
  positionals: {
    bundle: { type: 'string', describe: 'Bundle to update the cluster with', suggest: 'bundles' },
  },
  options,
  examples: [
    ['', 'Check whether the cluster can boot without a registry'],
    ['upgrade-4.19.4-x86_64.tar', 'Check whether it can also be updated from a bundle'],
    ['--mirror', 'Check whether nodes can pull from mirrors on the control plane'],
    ['/dev/sdb -o json', 'Print all findings as JSON'],
    ['--export=site.txt --text', 'Write a report that can be typed elsewhere'],
    ['--export=site.json', 'Write a report of the site, for create --for'],
  ],
  async run(args, { context, terminal, environment }) {
    using cluster = await openCluster(args, environment, context);
    // Before the bundle is read, which may take minutes.
    if (args.bundle !== undefined) await refuseHostedControlPlane(cluster);
    const plan = args.bundle === undefined ? undefined : await readPlan(args.bundle, cluster, args, context);
    const seen = await surveyCluster(cluster);
    const ownMirrors = await checkOwnMirrors(cluster, seen, plan, args.mirror, context);
    const survey = { ...seen, findings: [...seen.findings, ...ownMirrors] };
    await using registries = await openRegistries(args, environment, context);
    const mirrors = { registries, pushCommand: pushCommandOf(args.bundle) };
    const report = await runPreflight(cluster, plan, context, { survey, mirrors, ignore: args.ignore });
    for (const name of report.unused) context.log('warn', `--ignore=${name} is not needed: there is no such blocker`);
    if (args.export !== undefined) {
      const site = await readSite(cluster, survey, report, { tool, reportKey: await readReportKey(cluster) });
      await writeAtomically(args.export, args.text ? formatSiteText(site) : formatSiteReport(site));
      context.log('info', `wrote the report of the site to ${args.export}`);
    }
    const forms = {
      words: () => toWords(report, terminal.width),
      html: () => Lines.split(formatPreflightPage(report, { date: new Date(), tool })),
    };
    await terminal.printResult(args.output, report, forms, { blocker: 'bad', warning: 'doubtful', info: 'busy' });
    if (!report.ready) throw failureOf(report);
  },
});

/** The plan of a bundle, and the bytes of a copy of it with the base of a delta. */
type BundlePlan = UpdatePlan & { readonly bytes: number };

/** Reads the plan of a bundle that the user or the agents trust. */
async function readPlan(
  path: string,
  cluster: Cluster,
  args: Parameters<typeof offlineTrustOf>[0],
  context: Context,
): Promise<BundlePlan> {
  const trust = await addAgentTrust(cluster, offlineTrustOf(args), context);
  await using bundle = await openBundle(path, context);
  warnOfRisksIn(bundle.metadata, context);
  const bytes = bundle.size + sumSizes(bundle.metadata.base?.blobs ?? []);
  return { ...(await planUpdate(bundle, trust, context)), bytes };
}

/**
 * Checks mirrors on the control plane that the cluster has or, with `isPlanned`, gets. Loads nothing for any other
 * cluster.
 */
async function checkOwnMirrors(
  cluster: Cluster,
  survey: ClusterSurvey,
  plan: BundlePlan | undefined,
  isPlanned: boolean,
  context: Context,
): Promise<Finding[]> {
  if (!isPlanned && !survey.digestMirrors.some(isOwnMirrorSet)) return [];
  return [
    ...(await checkMirrors(cluster, survey, isPlanned ? mirrorPort : undefined, context)),
    ...(plan ? await checkQuota(cluster, survey, plan) : []),
  ];
}

/** Returns the command that pushes a release into a mirror: from the bundle, or else from its public repository. */
function pushCommandOf(bundle: string | undefined): (mirror: string, version: string) => string {
  return (mirror, version) =>
    bundle === undefined
      ? `oc adm-release-mirror-config ${version} --to=${shellWord(mirror)}`
      : `oc adm-upgrade-bundle push ${shellWord(bundle)} --to=${shellWord(mirror)}`;
}

function failureOf({ findings, target }: Preflight): PluginError {
  const blockers = findings.filter(isOpenBlocker);
  const what = target === undefined ? 'boot without a registry' : `update to ${target} without a registry`;
  return new PluginError('not-ready', `the cluster cannot ${what}: ${formatCount(blockers.length, 'blocker')}`, {
    hint: 'Follow the advice above, then run this again.',
    settings: blockers.some((finding) => nameIgnore(finding) !== undefined) ? ['ignore'] : [],
  });
}

/**
 * Formats the findings. `width` is that of the terminal, in characters. Advice is not wrapped: it has commands to
 * paste.
 */
function toWords({ cluster, version, target, nodes, workloads, findings }: Preflight, width: number): Lines {
  const plan = target === undefined ? '' : `, to be updated to ${target}`;
  const title =
    `${cluster}: OpenShift ${version}${plan}; ${formatCount(nodes, 'node')} and ` +
    `${formatCount(workloads, 'workload')} checked`;
  if (findings.length === 0) return new Lines(title, 'Nothing was found that needs a registry.');
  const groups = [...Map.groupBy(findings, (each) => `${severityOf(each)} ${each.check}`).values()];
  const rows = groups.flatMap((group) => [
    ...group
      .slice(0, shown)
      .map((finding) => [severityOf(finding), finding.check, nameSubject(finding.subject), finding.message]),
    ...(group.length > shown ? [['', '', `… and ${group.length - shown} more`, '-o json lists them all']] : []),
  ]);
  return new Lines(
    title,
    '',
    formatTable([['SEVERITY', 'CHECK', 'OBJECT', 'FINDING'], ...rows], [], width),
    '',
    ...listAdvice(findings),
  );
}

/**
 * Lists the advice, once for all findings with the same advice, and how to overrule the blockers that may be overruled.
 */
function listAdvice(findings: readonly Finding[]): string[] {
  const advice = new Set(findings.map(({ check, advice: text }) => `  ${check.padEnd(12)} ${text}`));
  const blockers = findings.filter(isOpenBlocker);
  const options = blockers.flatMap((finding) => {
    const name = nameIgnore(finding);
    return name === undefined
      ? []
      : [`  ${finding.check.padEnd(12)} --ignore=${shellWord(name)}   ${finding.because ?? ''}`];
  });
  const overruled = findings.filter(({ ignored }) => ignored === true);
  return [
    'What to do:',
    ...advice,
    ...(options.length > 0
      ? [
          '',
          'To overrule a blocker, give this command and apply its option. What happens then:',
          ...new Set(options.slice(0, shown)),
        ]
      : []),
    ...(overruled.length > 0
      ? [
          '',
          'Ignored. What may happen:',
          ...new Set(overruled.map(({ check, because = '' }) => `  ${check.padEnd(12)} ${because}`)),
        ]
      : []),
  ];
}
