import type { BundleBase } from '#bundle/metadata';
import { describeFinding, type Finding, ignoreFindings, nameIgnore } from '#cluster/finding';
import { conditionsOf } from '#cluster/objects';
import { readClusterVersion } from '#cluster/version';
import type { MergePatch, Written } from '#config/manifest';
import { acknowledgements, listDueAcknowledgements } from '#readiness/preflight';
import { describeGate, type RequiredGate } from '#release/payload';
import type { BundleFacts } from '../record/bundleFacts.ts';
import { isInstalled } from '../record/bundleRecord.ts';
import { clearCondition, falseCondition, listNames, type BundleCondition } from '../record/conditions.ts';
import type { AllowedFacts } from '../record/extraImages.ts';
import { checkControlPlaneOnly } from './controlPlaneOnly.ts';
import type { BaseGaps } from './loadState.ts';
import type { Observation } from './observation.ts';
import { findObstacles } from './readiness.ts';
import { checkRisks, formatSpecPatch } from './updateRequest.ts';

/** What prevents the next update. */
export interface Obstacle {
  /** The condition `Ready` that names it; undefined if nothing prevents the update. */
  readonly obstacle: BundleCondition | undefined;
  /** The conditions about acknowledgements, known risks and ignored blockers; empty if they stay as they are. */
  readonly acknowledged: readonly BundleCondition[];
}

/**
 * Finds what prevents the next update, after it has given the acknowledgements that are allowed. `loads`: whether nodes
 * are about to load.
 */
export async function findObstacle(observation: Observation, { loads }: { loads: boolean }): Promise<Obstacle> {
  const { otherBundles } = observation;
  const stop = (obstacle: BundleCondition): Obstacle => ({ obstacle, acknowledged: [] });
  if (otherBundles.length > 0)
    return stop(
      blocked('SeveralBundles', `there are others: ${listNames(otherBundles)}; delete all but one UpgradeBundle`),
    );
  const facts = await observation.facts();
  if (!facts) return stop(blocked('NotFound', 'the node of the controller has no verified bundle yet'));
  const { version } = readClusterVersion(observation.site.clusterVersion);
  const unfit = checkControlPlaneOnly(observation.bundle, version, facts);
  if (unfit) return stop(unfit);
  const { lacks, conditions } = await acknowledge(observation, facts);
  const risks = checkRisks(observation, facts);
  const [required] = [...(lacks ? conditions : []), ...(risks.lacks ? risks.conditions : [])];
  const acknowledged = [...conditions, ...risks.conditions];
  if (required) return { obstacle: blocked(required.reason, required.message), acknowledged };
  const { obstacle, ignored } = await checkSite(observation, facts, loads);
  return { obstacle, acknowledged: [...acknowledged, ...ignored] };
}

/** What prevents the update at the site, and the condition about what an administrator has overruled. */
interface SiteVerdict {
  readonly obstacle: BundleCondition | undefined;
  readonly ignored: readonly BundleCondition[];
}

async function checkSite(
  { cluster, bundle, site, load: state }: Observation,
  facts: AllowedFacts,
  loads: boolean,
): Promise<SiteVerdict> {
  const { ignore = [] } = bundle.spec;
  const all = await findObstacles(cluster, site, facts, loads ? state : undefined);
  // A bundle of the running release is only loaded and pinned.
  const isRunning = isInstalled(site.clusterVersion, facts.metadata.release);
  const found = isRunning ? all.filter(({ check }) => ['nodes', 'space', 'images'].includes(check)) : all;
  const { findings, unused } = ignoreFindings(found, ignore);
  const isOpen = ({ ignored }: Finding): boolean => ignored !== true;
  // Some checks are made only before loading.
  const idle = unused.filter((name) => loads || !/^(?:space|images)(?::|$)/.test(name));
  const ignored = describeIgnored(
    bundle,
    findings.filter((each) => !isOpen(each)),
    idle,
  );
  const open = findings.filter(isOpen);
  if (open.length > 0) return { obstacle: blocked('Blocked', describeBlockers(bundle, open)), ignored };
  const { base } = facts.metadata;
  return { obstacle: loads && base ? describeBaseGaps(state.base, base) : undefined, ignored };
}

/** Describes blockers, and how an administrator can overrule them. */
function describeBlockers({ metadata, spec }: Observation['bundle'], findings: readonly Finding[]): string {
  const names = findings.slice(0, shown).flatMap((finding) => nameIgnore(finding) ?? []);
  const words = listNames(findings.map(describeFinding), '; ');
  if (names.length === 0) return words;
  const ignore = [...new Set([...(spec.ignore ?? []), ...names])];
  return `${words}. To overrule it: ${formatSpecPatch(metadata.name, { ignore })}`;
}

/** The number of findings that a message names. */
const shown = 10;

/** Says which blockers an administrator has overruled, what may happen, and which names overrule nothing. */
function describeIgnored(
  { spec, status }: Observation['bundle'],
  findings: readonly Finding[],
  unused: readonly string[],
): BundleCondition[] {
  if (spec.ignore === undefined || spec.ignore.length === 0)
    return clearCondition(status, 'BlockersIgnored', 'NoneIgnored', 'no blocker is ignored');
  const words = findings.map((finding) => `${describeFinding(finding)} (${finding.because ?? ''})`);
  const idle = unused.length === 0 ? [] : [`not needed, because nothing is found: ${listNames(unused)}`];
  const isNone = findings.length === 0;
  const parts = [...(isNone ? [] : [`an administrator has overruled: ${listNames(words, '; ')}`]), ...idle];
  const message = parts.join('; ') || 'no blocker is found';
  return [
    isNone
      ? falseCondition('BlockersIgnored', 'NotNeeded', message)
      : { type: 'BlockersIgnored', status: 'True', reason: 'Ignored', message },
  ];
}

function describeBaseGaps(
  { missing, unknown }: BaseGaps,
  { version, images }: BundleBase,
): BundleCondition | undefined {
  const isDelta = images ? `the bundle is for a site with ${version}` : `the bundle is a delta of ${version}`;
  if (missing.length > 0) {
    const insert = `insert a USB drive with this bundle and the bundle of ${version}`;
    const repair = images ? `create it again from a new report of the site, or ${insert}` : insert;
    const lack = missing.length === 1 ? 'does' : 'do';
    return blocked('BaseMissing', `${isDelta}, and ${listNames(missing)} ${lack} not have all its images: ${repair}`);
  }
  if (unknown.length === 0) return undefined;
  return blocked(
    'BaseUnknown',
    `${isDelta}: waiting until ${listNames(unknown)} can tell whether its images are present`,
  );
}

function blocked(reason: string, message: string): BundleCondition {
  return falseCondition('Ready', reason, message);
}

/** The acknowledgements of the next update, and of the updates after it. */
interface Acknowledging {
  /** Whether the next update requires an acknowledgement that `spec.acknowledge` does not have. */
  readonly lacks: boolean;
  /** The condition about all of them; empty if it stays as it is. */
  readonly conditions: readonly BundleCondition[];
}

/**
 * Gives the cluster the acknowledgements that the next update requires, if `spec.acknowledge` has the names of all of
 * them. Reports the names that it lacks, also for the later updates with the bundle.
 */
export async function acknowledge(
  { cluster, bundle, site }: Pick<Observation, 'cluster' | 'bundle' | 'site'>,
  facts: BundleFacts,
): Promise<Acknowledging> {
  const { version } = facts.metadata;
  const releases = (facts.hops ?? [facts]).map(({ metadata, gates = [] }) => ({ version: metadata.version, gates }));
  const due = await listDueAcknowledgements(cluster, readClusterVersion(site.clusterVersion).version, releases);
  const { acknowledge: allowed = [] } = bundle.spec;
  const isAllowed = ({ name }: RequiredGate): boolean => allowed.includes(name);
  // A gate that operators may add is given before it appears, if it is allowed.
  const lacking = due.filter((each) => !isAllowed(each) && each.expected?.certain !== false);
  const own = due.filter((each) => each.version === version && (isAllowed(each) || !each.expected));
  const lacks = own.some((each) => lacking.includes(each));
  if (!lacks && own.length > 0) {
    const data = Object.fromEntries(own.map(({ name }) => [name, 'true']));
    await cluster.patch(acknowledgements, { data } satisfies MergePatch<Written<'ConfigMap'>>, {
      manager: 'controller',
    });
  }
  if (lacking.length > 0) return { lacks, conditions: [describeLacking(bundle, lacking)] };
  const isStale = conditionsOf(bundle).get('Acknowledged')?.status === 'False';
  if (own.length === 0 && !isStale) return { lacks, conditions: [] };
  const given = `written to the ConfigMap admin-acks, which the version operator reads: ${nameAll(own)}`;
  const message = own.length === 0 ? 'no acknowledgement is missing' : given;
  return { lacks, conditions: [{ type: 'Acknowledged', status: 'True', reason: 'Acknowledged', message }] };
}

/** Names the acknowledgements that are missing, and the command that allows all of them. */
function describeLacking({ metadata, spec }: Observation['bundle'], lacking: readonly RequiredGate[]): BundleCondition {
  const acknowledge = [...new Set([...(spec.acknowledge ?? []), ...lacking.map(({ name }) => name)])];
  const command = formatSpecPatch(metadata.name, { acknowledge });
  const message = `${listNames(lacking.map(describeGate), '; ')}. Follow the text, then allow it: ${command}`;
  return falseCondition('Acknowledged', 'AcknowledgementRequired', message);
}

function nameAll(acknowledged: readonly RequiredGate[]): string {
  return listNames(acknowledged.map(({ name }) => name));
}
