import { PluginError } from '../../lib/errors.ts';
import { isRepository, parseRepository } from '../../lib/content/oci/reference.ts';
import { openComplete } from '../../lib/bundle/deltaBase.ts';
import { guardCopies } from '../../lib/mirroring/pruneGuard.ts';
import { pushBundle } from '../../lib/bundle/deliver/push.ts';
import { checkSigned } from '../../lib/bundle/signedBundle.ts';
import { pushAndApply } from '../../lib/mirroring/pushedBundle.ts';
import { checkRepository } from '../cli/values/checks.ts';
import { defineCommand } from '../cli/command.ts';
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
import { openRegistries } from '../cli/access.ts';
import { clusterOpener } from '../cli/clusterAccess.ts';
import { trustOf } from '../cli/trust.ts';
import { checkOutcomes, warnOfOutcomes } from '../release-mirror-config/applyReport.ts';
import { formatPushed, toPlainPushed, type PushOutcome } from './pushReport.ts';

const configuration = 'Configuration:';

const { 'idms-file': _mirrors, ...ownOptions } = registryOptions;

/** `push`: pushes every image of a bundle into a registry. */
export const command = defineCommand({
  details:
    'Checks the signatures before anything is pushed, without a network unless --signature-store names one. The release, its ' +
    'components, extra images and sigstore attachments go into one repository, with their tags and unchanged digests. Existing ' +
    'content is skipped, so an interrupted push resumes if the same command is run again. With --apply-config, the cluster is ' +
    'checked first, and gets what it needs for the update as soon as all images are there.',
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
            ...{ ...options, overwrite: args.overwrite, catalogs: args.catalogs },
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
