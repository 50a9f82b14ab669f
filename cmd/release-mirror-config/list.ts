import { PluginError } from '#errors';
import { readStoredReleases } from '#mirroring/mirror';
import {
  nameRisks,
  resolveUpdatePath,
  type UpdatePath,
  resolveArchivedPath,
  namesWith,
  readArchivedChannels,
  readServedChannels,
  versionsOf,
} from '#release/graph';
import { parseArchitecture } from '#release/version';
import { Lines } from '#text';
import { openRegistries } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { formatTable } from '../cli/format.ts';
import { outputOption, registryOptions } from '../cli/options.ts';
import { mirrorOptions } from './options.ts';

const { 'certificate-authority': certificateAuthority, insecure } = registryOptions;
const {
  arch,
  'from-dir': fromDir,
  'graph-url': graphUrl,
  'path-from': pathFrom,
  'to-version': toVersion,
} = mirrorOptions;

/** `list`: shows channels, versions and paths of updates. */
export const command = defineCommand({
  details:
    'Asks the public update graph, or the one of --graph-url. Channels and versions can also come from an archive of ' +
    'graph data, without a network. Which updates exist is in the releases, so paths from an archive need --from-dir ' +
    'too. Checks no signature, and changes nothing.',
  positionals: {
    what: { type: 'string', required: true, choices: ['versions', 'channels', 'paths'], describe: 'What to list' },
  },
  options: {
    channel: { type: 'string', describe: 'Channel whose versions to list, such as stable-4.20' },
    version: { type: 'string', describe: 'Version whose channels to list', suggest: 'versions' },
    'path-from': { ...pathFrom, describe: 'First version of the path' },
    'to-version': { ...toVersion, describe: 'Last version of the path' },
    'graph-data': {
      type: 'string',
      describe: 'Archive of graph data (path or URL), instead of a graph',
      suggest: 'files',
      alsoTakes: 'url',
    },
    'from-dir': { ...fromDir, describe: 'Mirror directory or bundle with the releases of a path, for --graph-data' },
    'graph-url': graphUrl,
    arch,
    'certificate-authority': certificateAuthority,
    insecure,
    ...outputOption(),
  },
  examples: [
    ['versions --channel=stable-4.20', 'List the versions of a channel'],
    ['channels --graph-data=graph-data.tar.gz', 'List the channels of an archive, without a network'],
    ['paths --path-from=4.18.20 --to-version=4.20.3', 'Show the shortest path of updates'],
    [
      'paths --path-from=4.18.20 --to-version=4.20.3 --graph-data=graph-data.tar.gz --from-dir=/media/usb/mirror',
      'Show the shortest path through mirrored releases, without a network',
    ],
  ],
  async run(args, { context, terminal, environment }) {
    const { what, channel, version, graphData, fromDir: folder } = args;
    checkOptions(args);
    await using registries = await openRegistries(args, environment, context);
    const options = { graphUrl: args.graphUrl, fetchFile: registries.fetchFile };
    const architecture = parseArchitecture(args.arch ?? 'x86_64');
    if (what === 'paths') {
      const ends = { from: args.pathFrom ?? '', to: args.toVersion ?? '' };
      const path =
        graphData !== undefined && folder !== undefined
          ? await resolveArchivedPath(
              ends,
              graphData,
              await readStoredReleases(folder, architecture, context),
              options,
              context,
            )
          : await resolveUpdatePath(ends, architecture, options, context);
      await terminal.printResult(args.output, path, formatPath(path));
      return;
    }
    const channels =
      graphData === undefined
        ? await readServedChannels({ channel, version }, architecture, options, context)
        : await readArchivedChannels(graphData, options, context);
    const lines = what === 'channels' ? namesWith(channels, version) : versionsOf(channels, channel);
    await terminal.printResult(args.output, lines, new Lines(...lines));
  },
});

type ListArguments = Readonly<
  Record<'what' | 'channel' | 'version' | 'pathFrom' | 'toVersion' | 'graphData' | 'fromDir', string | undefined>
>;

function checkOptions(args: ListArguments): void {
  const { what, channel, version, pathFrom: from, toVersion: to, graphData, fromDir: folder } = args;
  const missing = {
    versions: channel === undefined ? '--channel' : undefined,
    channels: version === undefined && graphData === undefined ? '--version, or --graph-data' : undefined,
    paths: from === undefined || to === undefined ? '--path-from and --to-version' : undefined,
  }[what as 'versions'];
  if (missing !== undefined) throw new PluginError('usage', `list ${what ?? ''} needs ${missing}`);
  if (what === 'paths' && graphData !== undefined && folder === undefined) {
    throw new PluginError('usage', 'an archive of graph data has no paths: which updates exist is in the releases', {
      hint: 'Name the mirror directory or bundle that has them with --from-dir.',
    });
  }
  if (folder !== undefined && (what !== 'paths' || graphData === undefined)) {
    throw new PluginError('usage', '--from-dir is only for list paths with --graph-data');
  }
}

function formatPath({ steps }: UpdatePath): Lines {
  const rows = steps.map(({ version, risks, pullspec }) => [version, nameRisks(risks) || '-', pullspec]);
  return formatTable([['VERSION', 'KNOWN RISKS', 'IMAGE'], ...rows]);
}
