import { stat } from 'node:fs/promises';
import { PluginError } from '../../../lib/errors.ts';
import { defineCommand } from '../../cli/command.ts';
import { outputOption } from '../../cli/options.ts';
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
    ...outputOption(),
  },
  examples: [
    ['', 'Print the configuration'],
    ['--write', 'Configure the store on a machine without a configuration manager'],
  ],
  needsRoot: true,
  async run({ storePath, write, remove, root, output }, { terminal, environment }) {
    const { configureStore, describeStorage, removeStoreConfig } =
      await import('../../../lib/node/runtime/storeConfig.ts');
    const { formatResult } = await import('../../cli/format.ts');
    const { pathOnHost } = await import('../../../lib/machine/host.ts');
    const { shellWord } = await import('../../../lib/shellWord.ts');
    const host = { root, environment };
    const next = `Next: ${root === '/' ? '' : `chroot ${shellWord(root)} `}systemctl restart crio`;
    if (write && remove) throw new PluginError('usage', '--write and --remove exclude each other');
    const [file, store] = [pathOnHost(host, storageFile), pathOnHost(host, storePath)];
    const print = async (result: { changed: boolean; content?: string }, words: string): Promise<void> => {
      terminal.print(await formatResult(output, { file, store, ...result }, words));
    };
    if (remove) {
      const changed = await removeStoreConfig(host);
      await print({ changed }, changed ? `${file} is removed\n${next}` : 'There is nothing to remove');
    } else if (write) {
      await checkRoot(root);
      const changed = await configureStore(host, storePath);
      await print({ changed }, changed ? `${file} names ${storePath}\n${next}` : `${store} is known already`);
    } else {
      const content = await describeStorage(host, storePath);
      await print({ changed: false, content }, content.trimEnd());
    }
  },
});

/** Refuses a root that does not exist, because a mistyped path would be created. */
async function checkRoot(root: string): Promise<void> {
  const found = await stat(root).catch(() => undefined);
  if (found?.isDirectory()) return;
  throw new PluginError('usage', `--root: there is no folder ${root}`, { hint: 'Check the path.' });
}
