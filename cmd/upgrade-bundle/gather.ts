import { mkdir } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { encodeTar } from '#content/archive';
import { writeAtomically, writeDurably, OpenedFolder } from '#content/files';
import { PluginError } from '#errors';
import { Lines, shellCommand, redacted } from '#text';
import { gatherState, Redactor } from '#update/gather';
import { openCluster } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { formatCount } from '../cli/format.ts';
import { checkPlace, clusterAccessOptions, formatOption } from '../cli/options.ts';

/** `gather`: writes the state of an update into a folder or a tar. */
export const command = defineCommand({
  details:
    'For a person who can help and cannot reach the cluster. Writes UpgradeBundles, the reports of the agents, the ' +
    'objects that decide about an update, events, and the image lists of the nodes. Also writes the logs of the ' +
    'agents, the controllers, the machine config operator and the version operator. Redacts Secrets, tokens, ' +
    'passwords, private keys, most variables and foreign annotations, and prints how many of each. With --review, ' +
    'prints each redacted line, and packs nothing: read the files before you hand them over. What cannot be read is ' +
    'in failures.txt, and stops nothing. Changes nothing in the cluster.',
  options: {
    'dest-dir': {
      type: 'string',
      alias: 'output',
      check: checkPlace,
      describe: 'New folder for the files (default: upgrade-bundle-gather-TIME)',
      suggest: 'folders',
    },
    tar: { type: 'boolean', describe: 'Write one tar of that name, in place of the folder' },
    review: {
      type: 'boolean',
      describe: 'Write the folder, and print each redacted line and the command that packs it',
    },
    ...formatOption(),
    ...clusterAccessOptions,
  },
  examples: [
    ['', 'Write the state of the update into a new folder'],
    ['--tar', 'Write one file to hand over'],
    ['--review', 'Check what is handed over before it is packed'],
  ],
  async run(args, { context, terminal, environment }) {
    if (args.tar && args.review) throw new PluginError('usage', '--review packs nothing, so it excludes --tar');
    using cluster = await openCluster(args, environment, context);
    const time = new Date().toISOString().replace(/[-:]|\.\d+/g, '');
    const folder = args.destDir ?? `upgrade-bundle-gather-${time}`;
    const output = args.tar ? `${folder}.tar` : folder;
    if (!args.tar) {
      await mkdir(folder, { recursive: false, mode: 0o700 }).catch((cause: unknown) => {
        throw new PluginError('not-writable', `${folder} cannot be created as a new folder`, {
          cause,
          hint: 'Name a folder that does not exist.',
        });
      });
    }
    const redactor = new Redactor();
    const entries: { path: string; content: Buffer }[] = [];
    const places: RedactedLine[] = [];
    let failures: string[] = [];
    let files = 0;
    for await (const { path, content } of gatherState(cluster, redactor, context)) {
      files += 1;
      context.log('debug', path);
      if (args.tar) entries.push({ path: `upgrade-bundle-gather/${path}`, content: Buffer.from(content) });
      else {
        await using place = await OpenedFolder.open(folder, dirname(path), true);
        await writeDurably(place.at(basename(path)), content, { mode: 0o600 });
      }
      if (args.review) places.push(...findRedacted(path, content));
      if (path === 'failures.txt') failures = content.split('\n').filter((line) => line !== '');
    }
    if (args.tar) await writeAtomically(output, encodeTar(entries), { mode: 0o600 });
    if (failures.length > 0)
      context.log('warn', `${formatCount(failures.length, 'part')} could not be read: see failures.txt`);
    const counts = redactor.counts;
    const words = new Lines(
      ...places.map(({ file, line, text }) => `${file}:${line}: ${text}`),
      `wrote ${formatCount(files, 'file')} to ${output}`,
      ...counts.map(({ what, count }) => `redacted ${what}: ${count}`),
      ...(args.review ? [shellCommand`To pack it: tar -cf ${`${folder}.tar`} ${folder}`] : []),
    );
    const result = { output, files, failures, redacted: counts, ...(args.review && { places }) };
    await terminal.printResult(args.format, result, words);
  },
});

/** A line with something that was redacted. */
interface RedactedLine {
  readonly file: string;
  readonly line: number;
  readonly text: string;
}

/** The longest line that a review shows, in characters. */
const longestLine = 200;

function findRedacted(file: string, content: string): RedactedLine[] {
  return content
    .split('\n')
    .flatMap((text, index) =>
      text.includes(redacted) ? [{ file, line: index + 1, text: text.trim().slice(0, longestLine) }] : [],
    );
}
