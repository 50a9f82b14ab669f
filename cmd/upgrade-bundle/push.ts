import { openComplete, checkSigned, type SignedBundle } from '#bundle/open';
import { pushBundle, type PushResult } from '#bundle/push';
import { isRepository, parseRepository } from '#content/oci';
import { PluginError } from '#errors';
import type { Applied } from '#mirroring/mirror';
import { guardCopies } from '#mirroring/prune';
import { pushAndApply } from '#mirroring/pushedBundle';
import { shellWord, formatBytes, Lines } from '#text';
import { openRegistries, clusterOpener } from '../cli/access.ts';
import { listExtraImages } from '../cli/bundleFacts.ts';
import { defineCommand } from '../cli/command.ts';
import { formatFields } from '../cli/format.ts';
import { checkOutcomes, warnOfOutcomes, suffixOf, toPlainOutcome, type DryRun } from '../cli/mirroring/applyReport.ts';
import { clusterWords, registryWords, trustWords, upgradeCommand } from '../cli/mirroring/carriedOptions.ts';
import {
  baseOption,
  bundleArgument,
  clusterOptions,
  dryRunOption,
  outputOption,
  registryOptions,
  signedImagesOption,
  trustOptions,
} from '../cli/options.ts';
import { trustOf, describeSigned, nameVersions, toPlainSigned } from '../cli/trust.ts';
import { checkRepository } from '../cli/values.ts';

const configuration = 'Configuration:';

const { 'idms-file': _mirrors, ...ownOptions } = registryOptions;

/** `push`: pushes every image of a bundle into a registry. */
export const command = defineCommand({
  details:
    'Checks the signatures before anything is pushed, without a network unless --signature-store names one. The ' +
    'release, its components, extra images and sigstore attachments go into one repository, with their tags and ' +
    'unchanged digests. Existing content is skipped, so an interrupted push resumes if the same command is run ' +
    'again. With --apply-config, the cluster is checked first, and gets what it needs for the update as soon as all ' +
    'images are there.',
  positionals: bundleArgument,
  options: {
    to: {
      type: 'string',
      required: true,
      describe: 'Destination of the images: REGISTRY/REPOSITORY, without a tag',
      check: checkRepository,
    },
    'mount-from': {
      type: 'string',
      repeatable: true,
      describe: 'Another repository of the same registry to mount blobs from',
    },
    'apply-config': {
      type: 'boolean',
      describe: 'Then apply the signatures of the release and a mirror set for the destination to the cluster',
      group: configuration,
    },
    overwrite: {
      type: 'boolean',
      needs: ['apply-config'],
      describe: 'With --apply-config, replace values of the cluster’s objects that differ; mirrors are only added',
      group: configuration,
    },
    catalogs: {
      type: 'boolean',
      needs: ['apply-config'],
      describe:
        'With --apply-config, apply the catalogs of operators too, which the signature of the release does not cover',
      group: configuration,
    },
    ...dryRunOption,
    ...baseOption,
    ...outputOption(),
    ...ownOptions,
    ...trustOptions,
    ...signedImagesOption,
    ...clusterOptions,
  },
  examples: [
    [
      'upgrade-4.20.3-x86_64.tar --to=registry.example.com:5000/openshift/release -a auth.json',
      'Push a bundle into the registry of a site',
    ],
    [
      'upgrade-4.20.3-x86_64.tar --to=registry.example.com:5000/openshift/release -a auth.json --apply-config',
      'Push it, and send the nodes of the cluster to that registry',
    ],
  ],
  resumes: 'images',
  async run(args, { context, terminal, environment }) {
    const to = parseRepository(args.to);
    const mountFrom = args.mountFrom.map((text) => parseNeighbour(text, to.registry));
    const pushing = { ...context, onEvent: terminal.transfer('Pushing') };
    await using registries = await openRegistries(args, environment, pushing);
    await using bundle = await openComplete(args.bundle, { bases: args.base }, pushing);
    const trust = { ...trustOf(args), fetchFile: registries.fetchFile };
    const signed = await checkSigned(bundle, trust, pushing);
    const destination = registries.repository(to);
    const options = {
      concurrency: args.maxPerRegistry,
      mountFrom,
      guard: guardCopies(args.maxPerRegistry, pushing),
      dryRun: args.dryRun !== 'none',
    };
    const result: PushOutcome = args.applyConfig
      ? await pushAndApply(
          bundle,
          signed,
          destination,
          {
            ...options,
            overwrite: args.overwrite,
            catalogs: args.catalogs,
            dryRunMode: args.dryRun === 'none' ? undefined : args.dryRun,
          },
          { openCluster: clusterOpener(args, environment, context) },
          pushing,
        )
      : await pushBundle(bundle, signed, destination, options, pushing);
    const { applied = [], failure } = result;
    warnOfOutcomes(applied, terminal);
    const pushed = toPlainPushed(result, signed);
    await terminal.printResult(args.output, pushed, formatPushed(pushed, bundle.path, args));
    if (failure) throw failure;
    checkOutcomes(applied, args.dryRun);
  },
});

function parseNeighbour(text: string, registry: string): string {
  const repository = text.startsWith(`${registry}/`) ? text.slice(registry.length + 1) : text;
  if (isRepository(repository)) return repository;
  throw new PluginError('usage', `--mount-from ${text} is not a repository`);
}

/** The result of a push, and what was applied to the cluster if that was requested. */
type PushOutcome = PushResult & Partial<Applied>;

/** The arguments of a push that its report repeats. */
interface PushArguments extends Readonly<Record<string, unknown>> {
  readonly to: string;
  readonly base: readonly string[];
  readonly dryRun: DryRun;
}

/** Returns the result of a push as plain data. */
function toPlainPushed({ applied, failure, ...result }: PushOutcome, signed: SignedBundle) {
  return {
    ...toPlainSigned(signed),
    ...result,
    command: upgradeCommand(result.release),
    ...(applied && { applied: applied.map(toPlainOutcome), error: failure?.message }),
  };
}

/** Formats the result of a push as text, with the commands that follow on the cluster. `path` is that of the bundle. */
function formatPushed(result: ReturnType<typeof toPlainPushed>, path: string, args: PushArguments): Lines {
  const { images, attachments, tags, blobs, bytes, applied, error } = result;
  const isNew = blobs.uploaded + blobs.mounted > 0;
  const isDry = args.dryRun !== 'none';
  const uploaded = `${blobs.uploaded} ${isDry ? 'missing' : 'uploaded'} (${formatBytes(bytes)})`;
  const rows = [
    ['Release', result.release],
    ['Version', nameVersions(result)],
    ...describeSigned(result),
    ['Images', `${images}, ${attachments} sigstore attachments, ${tags} tags`],
    ...listExtraImages(result.extraImages),
    ['Blobs', `${uploaded}, ${blobs.mounted} mounted, ${blobs.skipped} present`],
  ];
  const bases = args.base.map((base) => ` --base=${shellWord(base)}`).join('');
  const again = `${shellWord(path)} --to=${shellWord(args.to)}${bases}${registryWords(args)}${trustWords(args)}`;
  const updates = (result.releases ?? [result.release]).map(
    (release) => `  ${upgradeCommand(release)}${clusterWords(args)}`,
  );
  const steps = [
    ...(applied
      ? []
      : [
          'Apply the signature of the release, and a mirror set for the destination (from a machine that ' +
            'reaches the cluster):',
          `  oc adm-upgrade-bundle push ${again} --apply-config${clusterWords(args)}`,
        ]),
    ...(error !== undefined
      ? []
      : [`Update the cluster${updates.length > 1 ? ', to one release after the other' : ''}:`, ...updates]),
  ];
  return new Lines(
    isNew ? (isDry ? 'Would be pushed' : 'Pushed') : 'Nothing to do: everything is present',
    formatFields(rows),
    ...(applied ?? []).map(({ object, outcome }) => `${object} ${outcome}${suffixOf(args.dryRun)}`),
    ...(isDry ? [] : steps),
  );
}
