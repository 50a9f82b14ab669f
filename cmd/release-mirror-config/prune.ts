import { PluginError } from '../../lib/errors.ts';
import { pruneTarget } from '../../lib/mirroring/prune/prune.ts';
import { parseDestination } from '../../lib/mirroring/destination.ts';
import { defineCommand } from '../cli/command.ts';
import { clusterOptions, dryRunOf, outputOption, registryOptions, yesOption } from '../cli/options.ts';
import { openAccess } from '../cli/access.ts';
import { clusterOpener } from '../cli/clusterAccess.ts';
import { mirrorOptions } from './options.ts';
import { formatPruned, toPlainPruned } from './pruneReport.ts';
import { configFolderOf } from './request.ts';

const { to, 'to-dir': toDir, 'to-release-image': toReleaseImage, 'config-to-dir': configToDir } = mirrorOptions;
const { 'idms-file': _, ...registries } = registryOptions;

/** `prune`: removes releases from a registry or a mirror directory. */
export const command = defineCommand({
  details:
    'Shows which releases at a target would be removed, and how many bytes that frees. Removes nothing unless --yes is given. ' +
    'With a release go its images, their sigstore signatures, its graph data and its files in the config folder. Releases of --keep and ' +
    'releases in the history of the cluster stay, and so do images that the cluster runs or has pinned. Images that belong to no known ' +
    'release stay too. If the run is interrupted, run it again: it resumes.',
  positionals: {},
  options: {
    keep: {
      type: 'string',
      repeatable: true,
      describe: 'Release to keep, such as 4.20.3 or 4.20.3-x86_64; several with commas between them',
    },
    ...yesOption('Remove the other releases instead of only showing them'),
    ...dryRunOf('With client or server, only show the other releases, also with --yes'),
    resume: { type: 'boolean', describe: 'Resume a run of another machine that was interrupted' },
    'ignore-cluster': { type: 'boolean', describe: 'Do not ask the cluster which images it needs' },
    ...outputOption(),
    to: { ...to, describe: 'REGISTRY/REPOSITORY that releases were mirrored to, as in the mirror command' },
    'to-dir': { ...toDir, describe: 'Mirror directory that releases were mirrored to' },
    'to-release-image': { ...toReleaseImage, describe: 'Repository of the release images, if it is another one' },
    'config-to-dir': {
      ...configToDir,
      describe: 'Folder with the configuration manifests, instead of config in --to-dir',
    },
    ...registries,
    ...clusterOptions,
  },
  examples: [
    [
      '--to=registry.example.com:5000/openshift/release --keep=4.19.12,4.20.3',
      'See what would be removed from a registry',
    ],
    ['--to-dir=/media/usb/mirror --keep=4.20.3 --yes', 'Remove all other releases from a directory'],
  ],
  async run(args, { context, terminal, environment }) {
    const keep = args.keep.flatMap((each) => each.split(',')).filter((each) => each !== '');
    if (keep.length === 0)
      throw new PluginError('usage', 'no release is kept', { hint: 'Name each with --keep, such as --keep=4.20.3.' });
    if (args.to === undefined && args.toDir === undefined) {
      throw new PluginError('usage', 'nothing says where the releases are', {
        hint: 'Give --to=REGISTRY/REPOSITORY or --to-dir=FOLDER.',
      });
    }
    const outcome = await pruneTarget(
      {
        destination: parseDestination(args),
        keep,
        configFolder: configFolderOf(args),
        configRoot: args.configToDir ?? args.toDir,
        isConfirmed: args.yes && args.dryRun === 'none',
        resume: args.resume,
        ignoreCluster: args.ignoreCluster,
        isClusterNamed: [args.kubeconfig, args.context, args.cluster, args.user, args.server].some(Boolean),
      },
      {
        registries: await openAccess(args, environment),
        openCluster: clusterOpener(args, environment, context),
      },
      context,
    );
    await terminal.printResult(args.output, toPlainPruned(outcome), formatPruned(outcome));
  },
});
