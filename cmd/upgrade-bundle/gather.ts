import { join } from 'node:path';
import { PluginError } from '../../lib/errors.ts';
import { defineCommand } from '../cli/command.ts';
import { clusterAccessOptions, outputOption } from '../cli/options.ts';

/** `gather`: writes the state of an update into a folder or a tar. */
export const command = defineCommand({
  details:
    'For a person who can help and cannot reach the cluster. Writes UpgradeBundles, the reports of the agents, the objects that decide about an ' +
    'update, events, and the image lists of the nodes. Also writes the logs of the agents, the controllers, the machine config operator ' +
    'and the version operator. Leaves out Secrets, tokens, passwords and private keys. What cannot be read is in ' +
    'failures.txt, and stops nothing. Changes nothing in the cluster.',
  options: {
    'dest-dir': {
      type: 'string',
      describe: 'New folder for the files (default: upgrade-bundle-gather-TIME)',
      suggest: 'folders',
    },
    tar: { type: 'boolean', describe: 'Write one tar of that name, in place of the folder' },
    ...outputOption(),
    ...clusterAccessOptions,
  },
  examples: [
    ['', 'Write the state of the update into a new folder'],
    ['--tar', 'Write one file to hand over'],
  ],
  async run(args, { context, terminal, environment }) {
    const { mkdir } = await import('node:fs/promises');
    const { encodeTar } = await import('../../lib/content/archive/tarLayout.ts');
    const { writeAtomically } = await import('../../lib/content/files/atomicWrite.ts');
    const { gatherState } = await import('../../lib/update/gatherState.ts');
    const { openCluster } = await import('../cli/clusterAccess.ts');
    const { formatCount } = await import('../cli/format.ts');
    using cluster = await openCluster(args, environment, context);
    const time = new Date().toISOString().replace(/[-:]|\.\d+/g, '');
    const folder = args.destDir ?? `upgrade-bundle-gather-${time}`;
    const output = args.tar ? `${folder}.tar` : folder;
    if (!args.tar) {
      await mkdir(folder, { recursive: false }).catch((cause: unknown) => {
        throw new PluginError('not-writable', `${folder} cannot be created as a new folder`, {
          cause,
          hint: 'Name a folder that does not exist.',
        });
      });
    }
    const entries: { path: string; content: Buffer }[] = [];
    let failures: string[] = [];
    let files = 0;
    for await (const { path, content } of gatherState(cluster, context)) {
      files += 1;
      context.log('debug', path);
      if (args.tar) entries.push({ path: `upgrade-bundle-gather/${path}`, content: Buffer.from(content) });
      else await writeAtomically(join(folder, path), content);
      if (path === 'failures.txt') failures = content.split('\n').filter((line) => line !== '');
    }
    if (args.tar) await writeAtomically(output, encodeTar(entries));
    if (failures.length > 0)
      context.log('warn', `${formatCount(failures.length, 'part')} could not be read: see failures.txt`);
    const words = `wrote ${formatCount(files, 'file')} to ${output}`;
    await terminal.printResult(args.output, { output, files, failures }, words);
  },
});
