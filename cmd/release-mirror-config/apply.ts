import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { readManifests } from '../../lib/cluster/apply.ts';
import { openCluster } from '../clusterAccess.ts';
import { defineCommand } from '../command.ts';
import { clusterOptions, formatOption } from '../options.ts';
import { applyConfiguration, checkOutcomes, formatOutcome, toPlainOutcome } from './configuration.ts';
import { dryRunOption } from './options.ts';

/** `apply`: the configuration in a folder to a cluster. */
export const command = defineCommand({
  details:
    'Every object in the YAML and JSON files of the folder and its subfolders is created in the cluster. One that exists ' +
    'with the same content is left as it is; one with other content is reported and left alone, unless --overwrite is given. An object ' +
    'that fails does not keep the others from being applied.',
  positionals: {
    folder: { type: 'string', required: true, describe: 'A config folder, or a mirror directory that has one' },
  },
  options: {
    overwrite: { type: 'boolean', describe: 'Replace objects of the cluster that have other content' },
    ...dryRunOption,
    ...formatOption(['json']),
    ...clusterOptions,
    'certificate-authority': {
      type: 'string',
      describe: 'PEM file with the authority that the certificate of the API server is from',
      group: 'Cluster:',
    },
  },
  examples: [
    ['/media/stick/mirror', 'Apply the configuration of a release that came over the gap'],
    ['/media/stick/mirror/config --dry-run=server', 'See what would be done'],
  ],
  async run(args, { context, terminal, environment }) {
    const manifests = await readManifests(await findFolder(args.folder));
    const cluster = await openCluster(args, environment, context);
    try {
      const outcomes = await applyConfiguration(cluster, manifests, args, context);
      if (args.format === 'json') terminal.print(JSON.stringify(outcomes.map(toPlainOutcome), null, 2));
      else for (const outcome of outcomes) terminal.print(formatOutcome(outcome, args.dryRun));
      checkOutcomes(outcomes);
    } finally {
      cluster.close();
    }
  },
});

async function findFolder(folder: string): Promise<string> {
  const inside = join(folder, 'config');
  // Of a mirror directory, the rest is no configuration: it may have JSON files too.
  const isMirror = await stat(join(folder, 'v2')).catch(() => undefined);
  return isMirror && (await stat(inside).catch(() => undefined)) ? inside : folder;
}
