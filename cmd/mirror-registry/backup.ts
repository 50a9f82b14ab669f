import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { sumSizes } from '#content/oci';
import { backUpRegistry, planBackup, type BackupPlan } from '#registry-host/backup';
import { formatBytes, Lines } from '#text';
import { defineCommand } from '../cli/command.ts';
import { formatCount } from '../cli/format.ts';
import { checkPlace, dryRunOf, formatOption } from '../cli/options.ts';
import { executionOptions, registryHostOptions, requestOf } from './options.ts';

const usualName = 'mirror-registry-backup.tar';

/** `backup`: writes the state of a mirror registry to a file. */
export const command = defineCommand({
  details:
    'Writes the configuration, the certificates with their keys, the units and the database to one tar that only you ' +
    'can read, with a manifest of SHA-256 digests. Stops Quay while a database of SQLite is copied, and starts it ' +
    'again: usually for less than a minute. PostgreSQL (releases before 2.0) is dumped while the registry runs. ' +
    '--images adds the content of images, which is read while the registry runs. The ' +
    'file gets its name when it is complete. An interrupted run starts over.\n\n' +
    'The file has all secrets of the registry. The command restore reads it.',
  options: {
    output: {
      type: 'string',
      default: '.',
      describe: `File to write, or a folder for ${usualName}`,
      suggest: 'paths',
      check: checkPlace,
    },
    images: { type: 'boolean', describe: 'Include the content of images' },
    ...dryRunOf('With client or server, only print the parts of the backup and their sizes'),
    ...formatOption(),
    'health-timeout': { ...executionOptions['health-timeout'], describe: 'Time to wait for a healthy registry' },
    podman: executionOptions.podman,
    systemctl: executionOptions.systemctl,
    ...registryHostOptions,
  },
  examples: [
    ['--output=registry.tar', 'Back up the configuration, the certificates and the database'],
    ['--output=/media/usb/registry.tar --images', 'Back up everything, to move the registry to another host'],
  ],
  async run(args, { context, terminal, environment }) {
    const { images: withImages, dryRun } = args;
    const isFolder = await stat(args.output).then(
      (stats) => stats.isDirectory(),
      () => false,
    );
    const output = isFolder ? join(args.output, usualName) : args.output;
    const execution = { ...args, restart: true, force: false, keepBackups: 3 };
    const request = { ...(await requestOf(execution, environment, context.signal)), output, withImages };
    if (dryRun !== 'none') {
      const plan = await planBackup(request);
      await terminal.printResult(args.format, { outcome: 'planned', ...plan }, describePlan(plan));
      return;
    }
    const { files, ...facts } = await backUpRegistry(request, context);
    const size = sumSizes(files);
    const result = { outcome: 'written', output, ...facts, fileCount: files.length, size };
    const words =
      `Wrote ${output}: ${formatCount(files.length, 'file')}, ${formatBytes(size)}. It has all keys and ` +
      'passwords of the registry.';
    await terminal.printResult(args.format, result, words);
  },
});

function describePlan({ output, files, database, databaseSize, stopsQuay, images, imagesSize }: BackupPlan): Lines {
  return new Lines(
    `Would write ${output}`,
    '',
    ...files.map((path) => `file ${path}`),
    `database in ${database}, ${formatBytes(databaseSize)}`,
    images === undefined
      ? 'without the content of images: --images includes it'
      : `content of images in ${images}, ${formatBytes(imagesSize)}`,
    '',
    stopsQuay ? 'Quay would be stopped while its database is copied.' : 'The registry would keep running.',
  );
}
