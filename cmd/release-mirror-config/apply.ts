import { checkKinds } from '../../lib/cluster/acceptedKinds.ts';
import { openCluster } from '../clusterAccess.ts';
import { defineCommand } from '../command.ts';
import { clusterAccessOptions, dryRunOption, formatOption } from '../options.ts';
import { applyConfiguration, checkOutcomes, formatOutcome, toPlainOutcome } from './configuration.ts';
import { tellOfResuming } from './interruption.ts';
import { readConfiguration } from './readConfiguration.ts';

/** `apply`: the configuration in a folder or bundle to a cluster. */
export const command = defineCommand({
  details:
    'Every object in the YAML and JSON files of the folder and its subfolders is created in the cluster. One that exists ' +
    'with the same content is left as it is; one with other content is reported and left alone, unless --overwrite is given. An object ' +
    'that fails does not keep the others from being applied. Only what configuration of a release consists of is applied: namespaces, ' +
    'ConfigMaps, mirror sets, an UpdateService, an UpgradeBundle; with anything else in the folder, nothing is.',
  positionals: {
    config: {
      type: 'string',
      required: true,
      describe: 'A config folder, or a mirror directory or a bundle that has one',
      suggest: 'files',
    },
  },
  options: {
    overwrite: { type: 'boolean', describe: 'Replace objects of the cluster that have other content' },
    ...dryRunOption,
    ...formatOption(['json']),
    ...clusterAccessOptions,
  },
  examples: [
    ['/media/stick/mirror', 'Apply the configuration of a release that came over the gap'],
    ['/media/stick/mirror/config --dry-run=server', 'See what would be done'],
    ['/media/stick/upgrade-4.12.4-x86_64.tar', 'Apply what a bundle has, which is the signature of its release'],
  ],
  async run(args, { context, terminal, environment }) {
    const manifests = await readConfiguration(args.config, context);
    checkKinds(manifests, args.config);
    const cluster = await openCluster(args, environment, context);
    try {
      const outcomes = await tellOfResuming(() => applyConfiguration(cluster, manifests, args, context));
      if (args.format === 'json') terminal.print(JSON.stringify(outcomes.map(toPlainOutcome), null, 2));
      else for (const outcome of outcomes) terminal.print(formatOutcome(outcome, args.dryRun));
      checkOutcomes(outcomes, args.dryRun);
    } finally {
      cluster.close();
    }
  },
});
