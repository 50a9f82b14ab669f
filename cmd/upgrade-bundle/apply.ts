import type { BundleEvidence } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import { requireIgnorable, formatSubject } from '#cluster/finding';
import { isDigest, type Digest, digestIn } from '#content/oci';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { listDueAcknowledgements, findLeftOut } from '#readiness/preflight';
import { describeGate } from '#release/payload';
import { Lines, shellCommand } from '#text';
import {
  allowBundle,
  type BundleRequest,
  fitsSpec,
  backupModes,
  phaseOf,
  type UpgradeBundle,
  checkWindow,
  readNeeds,
  findWindow,
  usualNeeds,
} from '#update/record';
import { openCluster } from '../cli/access.ts';
import { warnOfClaimedRisks, warnOfExtraImages } from '../cli/bundleFacts.ts';
import { defineCommand, inGroup, type Arguments } from '../cli/command.ts';
import { formatYaml } from '../cli/format.ts';
import { suffixOf } from '../cli/mirroring/applyReport.ts';
import { clusterWords } from '../cli/mirroring/carriedOptions.ts';
import { dryRunOption, outputOption } from '../cli/options.ts';
import { listPolicies, toPlainPolicies } from '../cli/trust.ts';
import { formatUnifiedDiff } from '../cli/unifiedDiff.ts';
import {
  checkNodePath,
  namedArgument,
  namedOptions,
  namedTrustOptions,
  followLine,
  identifyNamed,
  requireOneBundle,
} from './namedBundle.ts';
import { describeWindow } from './status/statusView.ts';

function checkAcknowledgement(text: string): void {
  if (fitsSpec('acknowledge', text)) return;
  throw new PluginError('usage', `“${text}” is not the name of an acknowledgement`, {
    hint:
      'It begins with ack- and a version, such as ack-4.19-kube-1.33-api-removals-in-4.20. preflight with the ' +
      'bundle names each that is due.',
  });
}

function checkRisk(text: string): void {
  if (fitsSpec('acceptRisks', text)) return;
  throw new PluginError('usage', `“${text}” is not the name of a known risk`, {
    hint: 'It is one line of at most 256 characters, as preflight with the bundle prints it.',
  });
}

function checkWindowOption(text: string): void {
  if (text !== 'always') checkWindow(text);
}

function checkExtra(text: string): void {
  if (text === 'all' || isDigest(text)) return;
  throw new PluginError('usage', `“${text}” is neither “all” nor a digest (sha256:<64 hex digits>)`);
}

const options = {
  ...dryRunOption,
  ...outputOption(),
  ...namedOptions,
  ...inGroup('Update:', {
    hold: { type: 'boolean', describe: 'Load everything, then wait for resume before the update starts' },
    'hold-between': {
      type: 'boolean',
      describe: 'Of several updates, wait for resume before each one after the first, with everything loaded',
    },
    'control-plane-only': {
      type: 'boolean',
      describe:
        'From an extended (EUS) release to the next one, pause the other pools until the control plane has both ' +
        'updates',
    },
    window: {
      type: 'string',
      repeatable: true,
      describe: 'Start updates only in this maintenance window: “Sat 22:00-04:00 Europe/Berlin”; always removes all',
      check: checkWindowOption,
    },
    'window-needs': {
      type: 'string',
      needs: ['window'],
      describe: 'Time that must be left in a window when an update starts (default: 2h)',
      check: (text) => void readNeeds(text),
    },
    backup: {
      type: 'string',
      choices: backupModes,
      describe: 'Back up etcd on a control plane node before each update (default: on)',
    },
    'backup-to': {
      type: 'string',
      describe: 'Copy the backup to this folder of a drive that is mounted on the node with the backup',
      check: checkNodePath,
    },
    'allow-extra-images': {
      type: 'string',
      repeatable: true,
      describe: 'Load the extra image with this digest, or all of them; the release signature does not cover them',
      check: checkExtra,
    },
  }),
  ...inGroup('Obstacles:', {
    acknowledge: {
      type: 'string',
      repeatable: true,
      describe: 'Give the cluster the acknowledgement with this name (admin-acks) when an update requires it',
      check: checkAcknowledgement,
    },
    'accept-risk': {
      type: 'string',
      repeatable: true,
      describe: 'Accept the known risk of this name for the updates; the bundle and the cluster name them',
      check: checkRisk,
    },
    ignore: {
      type: 'string',
      repeatable: true,
      describe:
        'Update in spite of the blockers of this check, or of this check and object, such as nodes:node/worker-3',
      check: requireIgnorable,
    },
  }),
  ...namedTrustOptions,
} as const;

/** `apply`: allows the bundle that the cluster updates with. */
export const command = defineCommand({
  details:
    'Allows the cluster to update itself from one bundle, which an UpgradeBundle names by its digest. The bundle ' +
    'itself is not uploaded. The agents find it on a USB drive in a node, or at the place that --device names. They ' +
    'load it on every node, and start the update unless it is on hold. Agents that have already found a bundle wait ' +
    'for this permission. The argument can be the bundle, or the .yaml or .sha256 file beside it. Of a bundle, every ' +
    'byte is read for its digest, and the release signature is checked without a network. A bundle that the agents ' +
    'would refuse is refused here, and so is one that differs from a file beside it. Of a file beside a bundle, ' +
    'nothing is verified. The agents check the signature and every byte again.',
  positionals: namedArgument,
  options,
  examples: [
    ['upgrade-4.19.4-x86_64.tar.yaml', 'Allow a bundle by the .yaml file beside it'],
    ['upgrade-4.19.4-x86_64.tar --hold', 'Load it on all nodes, and wait for resume'],
    ['upgrade-4.19.4-x86_64.tar --allow-extra-images=all', 'Load the images outside the release too'],
    ['--device=/dev/sdb --digest=sha256:…', 'Allow a bundle on a device of a node'],
  ],
  async run(args, { context, terminal, environment, stdin }) {
    const named = requireOneBundle(args);
    using cluster = await openCluster(args, environment, context, args.dryRun);
    const { request, evidence } = await identifyNamed(cluster, named, args, { context, terminal, stdin });
    const settings = readSettings(args, evidence?.extraImages, context);
    const { base } = evidence ?? {};
    for (const { subject, message } of base?.images ? await findLeftOut(cluster, base) : [])
      context.log('warn', `${formatSubject(subject)} ${message}`);
    requireWindow(settings);
    const { bundle, outcome, before } = await allowBundle(cluster, { ...request, ...settings });
    warnOfExtraImages(evidence?.signed.extraImages ?? [], terminal);
    warnOfClaimedRisks(evidence?.releases ?? [], bundle.spec.acceptRisks ?? [], context);
    if (evidence) await warnOfAcknowledgements(cluster, bundle, evidence, context);
    const { name } = bundle.metadata;
    const phase = bundle.status && phaseOf(bundle);
    const sigstore = evidence && toPlainPolicies(evidence.signed.policies);
    const isDry = args.dryRun !== 'none';
    const window = describeWindow(bundle, cluster.now());
    const diff = isDry ? await formatRecordDiff(before, bundle) : undefined;
    const words = [
      `upgradebundle/${name} ${outcome}${suffixOf(args.dryRun)}`,
      ...listPolicies(sigstore ?? []),
      ...(window === undefined ? [] : [`Maintenance window: ${window}.`]),
      ...(isDry ? [Lines.split(diff ?? '')] : [followLine(phase, clusterWords(args), bundle.spec.hold)]),
    ];
    await terminal.printResult(args.output, { name, outcome, phase, sigstore, diff }, new Lines(...words));
  },
});

/** Returns what a request changes in a record, as a unified diff of YAML; empty for nothing. */
async function formatRecordDiff(before: UpgradeBundle | undefined, after: UpgradeBundle): Promise<string> {
  const format = ({ metadata: { name, annotations }, spec }: UpgradeBundle): Promise<string> =>
    formatYaml({ metadata: { name, annotations }, spec });
  const texts = await Promise.all([before ? format(before) : '', format(after)]);
  return formatUnifiedDiff(`upgradebundle/${after.metadata.name}`, ...texts).trimEnd();
}

/** Throws `usage` if no window is long enough. */
function requireWindow({ windows = [], windowNeeds }: Partial<BundleRequest>): void {
  if (windows.length === 0) return;
  const needs = windowNeeds ?? usualNeeds;
  const { open, next } = findWindow(windows, needs, Date.now());
  if (open ?? next) return;
  throw new PluginError('usage', `no --window has the ${needs} that an update needs`, {
    hint: 'Give a longer window, or a shorter time with --window-needs.',
  });
}

/**
 * Returns the windows of the command line; none for `always`, and undefined if it has no such option. Throws `usage`.
 */
function readWindows(given: readonly string[]): readonly string[] | undefined {
  const windows = [...new Set(given.filter((text) => text !== 'always'))];
  if (windows.length > 0 && given.includes('always'))
    throw new PluginError('usage', '--window cannot be “always” and a time', {
      hint: 'Give the windows that the update may start in, or --window=always alone to remove them.',
    });
  return given.length === 0 ? undefined : windows;
}

/** Reads the settings of the update. `extras`: the extra images of the bundle; undefined if it was not read. */
function readSettings(
  args: Arguments<typeof options>,
  extras: readonly string[] | undefined,
  context: Context,
): Partial<BundleRequest> {
  const { backup, backupTo, acknowledge, acceptRisk, ignore } = args;
  return {
    backup,
    backupTo,
    windowNeeds: args.windowNeeds,
    windows: readWindows(args.window),
    hold: args.hold ? true : undefined,
    holdBetween: args.holdBetween ? true : undefined,
    controlPlaneOnly: args.controlPlaneOnly ? true : undefined,
    allowExtraImages: chooseExtras(args.allowExtraImages, extras, context),
    acknowledge: acknowledge.length === 0 ? undefined : [...new Set(acknowledge)],
    acceptRisks: acceptRisk.length === 0 ? undefined : [...new Set(acceptRisk)],
    ignore: ignore.length === 0 ? undefined : [...new Set(ignore)],
  };
}

/** Warns of the acknowledgements that the updates require and that the UpgradeBundle does not allow. */
async function warnOfAcknowledgements(
  cluster: Cluster,
  { spec }: UpgradeBundle,
  { signed }: BundleEvidence,
  context: Context,
): Promise<void> {
  const releases = signed.releases.map(({ release }) => release);
  try {
    const site = await cluster.clusterVersion();
    const due = site ? await listDueAcknowledgements(cluster, site.version, releases) : [];
    for (const each of due.filter(({ name }) => !spec.acknowledge?.includes(name))) {
      const level = each.expected?.certain === false ? 'info' : 'warn';
      context.log(level, describeGate(each) + shellCommand`. To allow it, add --acknowledge=${each.name}`);
    }
  } catch (error) {
    if (!isPluginError(error, 'denied')) throw error;
    context.log('warn', `whether the updates require acknowledgements is unknown: ${error.message}`);
  }
}

/**
 * Returns the digests of the extra images to allow; undefined to keep the field. Logs the extra images, and which are
 * left out.
 */
function chooseExtras(
  values: readonly string[],
  extras: readonly string[] | undefined,
  context: Context,
): Digest[] | undefined {
  if (values.includes('all') && !extras) {
    throw new PluginError('usage', '--allow-extra-images=all needs the bundle itself, which names its extra images', {
      hint: 'Give the bundle, or the digest of each image: --allow-extra-images=sha256:…',
    });
  }
  const chosen = [...(values.includes('all') ? (extras ?? []).map(digestIn) : []), ...values].filter(isDigest);
  for (const image of extras ?? []) {
    const isChosen = chosen.some((digest) => digest === digestIn(image));
    const words = isChosen ? 'is loaded' : 'is not loaded; to load it, add --allow-extra-images=all or its digest';
    context.log(isChosen ? 'info' : 'warn', `the release signature does not cover ${image}: it ${words}`);
  }
  return values.length === 0 ? undefined : [...new Set(chosen)];
}
