import { PluginError } from '../../../lib/errors.ts';
import { configureStore, describeStorage, removeStoreConfig } from '../../../lib/node/runtime/storeConfig.ts';
import { defineCommand } from '../../cli/command.ts';
import { hostOptions } from './host.ts';
import { defaultStorePath, storageFile } from '../../../lib/machine/paths.ts';

/** `storage`: adds an additional image store to the configuration. */
export const command = defineCommand({
  details:
    `Prints ${storageFile} with an additional store. --write writes it on a machine that has no such file. A file of another owner ` +
    `is never changed, because the machine config operator would treat that as damage. The folder of the store is created first, ` +
    `because no container runtime starts without it.`,
  options: {
    'store-path': {
      type: 'string',
      default: defaultStorePath,
      describe: 'Folder of the additional store',
      suggest: 'folders',
    },
    write: { type: 'boolean', describe: 'Write the file if it does not exist' },
    remove: { type: 'boolean', describe: 'Remove the file that --write made' },
    ...hostOptions,
  },
  examples: [
    ['', 'Show what has to be in the file'],
    ['--write', 'Configure the store on a machine without a configuration manager'],
  ],
  async run({ storePath, write, remove, root }, { terminal, environment }) {
    const host = { root, environment };
    const next = 'Next: systemctl restart crio';
    if (write && remove) throw new PluginError('usage', '--write and --remove are two things');
    if (remove) {
      terminal.print(
        (await removeStoreConfig(host)) ? `${storageFile} is removed\n${next}` : 'There is nothing to remove',
      );
    } else if (write) {
      const changed = await configureStore(host, storePath);
      terminal.print(changed ? `${storageFile} names ${storePath}\n${next}` : `${storePath} is known already`);
    } else {
      terminal.print((await describeStorage(host, storePath)).trimEnd());
    }
  },
});
