import { PluginError } from '#errors';
import { applyConfiguration } from '#mirroring/configuration';
import { openAccess, openCluster } from '../cli/access.ts';
import { defineCommand, type CommandSession } from '../cli/command.ts';
import { formatData } from '../cli/format.ts';
import { checkOutcomes, formatOutcome, toPlainOutcome, warnOfOutcomes } from '../cli/mirroring/applyReport.ts';
import { clusterAccessOptions, dryRunOption, outputOption, signedImagesOption, trustOptions } from '../cli/options.ts';
import { trustOf } from '../cli/trust.ts';
import { fileOf, filenameOption } from '../cli/values.ts';

/** `apply`: applies the configuration in a folder or bundle to a cluster. */
export const command = defineCommand({
  details:
    'Checks the signature of each release in a bundle or mirror directory, without a network unless ' +
    '--signature-store names one. Then applies what goes with these releases: their signatures, and from a mirror ' +
    'directory the mirror sets and the update service of the registries that --mirror-registry names. With anything ' +
    'else in it, nothing is applied. A folder without a release may hold signatures by trusted keys; configuration ' +
    'made by hand needs --allow-unsigned. An object that exists with the same content is left as it is; one with ' +
    'other content is reported and left alone, unless --overwrite is given. Mirror sets and certificate authorities ' +
    'are different: what the configuration adds is added to the object, and what only the object has stays and is ' +
    'listed, with --overwrite too. An object that fails does not keep the others from being applied.',
  positionals: {
    config: {
      type: 'string',
      describe: 'A bundle, a device that holds one, a mirror directory, a config folder, or - for standard input',
      suggest: 'paths',
    },
  },
  options: {
    ...filenameOption,
    overwrite: {
      type: 'boolean',
      describe: 'Replace values of the cluster’s objects that differ; mirrors are only added',
    },
    ...dryRunOption,
    'mirror-registry': {
      type: 'string',
      repeatable: true,
      describe: 'Registry (HOST or HOST:PORT) that mirror sets and an update service may refer to',
    },
    catalogs: {
      type: 'boolean',
      describe: 'Apply the catalogs of operators in a bundle, which the signature of the release does not cover',
    },
    ...outputOption(),
    ...trustOptions,
    ...signedImagesOption,
    ...clusterAccessOptions,
  },
  examples: [
    ['/media/usb/upgrade-4.20.3-x86_64.tar', 'Apply the release signature of a bundle'],
    ['/media/usb/mirror --dry-run=server', 'Print what would be applied from a mirror directory'],
    ['-f config --allow-unsigned', 'Apply configuration that was made by hand'],
  ],
  async run(args, { context, terminal, environment, stdin }) {
    const trust = { ...trustOf(args), registries: args.mirrorRegistry, catalogs: args.catalogs };
    const { overwrite, dryRun } = args;
    const path = fileOf(args.config, args.filename);
    if (path === undefined) {
      throw new PluginError('usage', 'no configuration is named', {
        hint: 'Give a bundle, a mirror directory, a config folder, or - for the standard input.',
      });
    }
    const text = path === '-' ? await readInput(stdin) : undefined;
    const outcomes = await applyConfiguration(
      {
        path: text === undefined ? path : 'the standard input',
        text,
        trust,
        overwrite,
        ...(dryRun !== 'none' && { dryRun }),
      },
      {
        registries: await openAccess({}, environment),
        openCluster: () => openCluster(args, environment, context),
      },
      context,
    );
    warnOfOutcomes(outcomes, terminal);
    if (outcomes.some(({ manifest }) => manifest.object.kind === 'CatalogSource')) context.log('info', defaultCatalogs);
    if (args.output) terminal.print(await formatData(args.output, outcomes.map(toPlainOutcome)));
    else for (const outcome of outcomes) terminal.print(formatOutcome(outcome, dryRun));
    checkOutcomes(outcomes, dryRun);
  },
});

const defaultCatalogs =
  'the default catalogs need a registry; to disable them: ' +
  `oc patch operatorhub cluster --type=merge -p '{"spec":{"disableAllDefaultSources":true}}'`;

/** The largest input, as the largest folder of manifests. */
const inputLimit = 4 * 1024 * 1024;

async function readInput(input: CommandSession['stdin']): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of input) {
    length += chunk.length;
    if (length > inputLimit) throw new PluginError('too-large', 'the standard input has more than 4 MiB of manifests');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
