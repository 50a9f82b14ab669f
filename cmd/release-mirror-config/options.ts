import { inGroup } from '../cli/command.ts';
import { channelOptions } from '../cli/mirroring/channelRange.ts';
import { imageListOption } from '../cli/mirroring/imageSet.ts';
import { clusterOptions, dryRunOption, outputOption, registryOptions, trustOptions } from '../cli/options.ts';
import { checkImage } from '../cli/values.ts';

const destination = 'Destination:';
const configuration = 'Configuration:';

/** The file with options of the mirror command. */
export const mirrorConfig = {
  option: 'file',
  without: [],
  alternatives: ['release', 'from', 'version', 'path-from', 'channel'],
} as const;

/**
 * The options of the mirror command: the options of `oc adm release mirror` with the same names, and additional ones.
 */
export const mirrorOptions = {
  file: {
    type: 'string',
    alias: 'f',
    hiddenAlias: 'filename',
    describe:
      'ImageSetConfiguration of oc-mirror with the releases, - for the standard input; options on the command ' +
      'line replace its fields',
    suggest: 'files',
    alsoTakes: 'stdin',
  },
  'additional-image': {
    type: 'string',
    alias: 'extra-image',
    repeatable: true,
    describe: 'Image to mirror in addition to those of the release, which the release signature does not cover',
    check: checkImage,
  },
  ...imageListOption,
  ...dryRunOption,
  ...outputOption(),
  ...inGroup('Release:', {
    from: { type: 'string', describe: 'The release, instead of the argument', suggest: 'versions' },
    version: {
      type: 'string',
      describe: 'Same as --from; without a value, print the version of this program',
      suggest: 'versions',
    },
    'from-dir': {
      type: 'string',
      describe: 'Mirror directory or bundle to read the release from',
      suggest: 'bundles',
    },
    arch: {
      type: 'string',
      choices: ['x86_64', 'aarch64', 'ppc64le', 's390x', 'multi', 'amd64', 'arm64'],
      describe: 'Architecture of a version (default: that of the cluster, else x86_64)',
    },
    'graph-url': {
      type: 'string',
      describe: 'URL of the update graph that finds versions (default: that of the cluster, else the public one)',
    },
    'release-repository': {
      type: 'string',
      describe: 'Repository to look up a version in by its tag, instead of an update graph',
    },
  }),
  ...inGroup('Several releases:', {
    'path-from': {
      type: 'string',
      describe: 'Version to update from: mirror all releases on the shortest supported path to --to-version',
      suggest: 'versions',
    },
    'to-version': { type: 'string', describe: 'Version to update to, with --path-from', suggest: 'versions' },
    ...channelOptions,
  }),
  to: {
    type: 'string',
    describe: 'REGISTRY/REPOSITORY for all images, which may contain ${version} and ${component}; or file://REPOSITORY',
    group: destination,
  },
  'to-dir': {
    type: 'string',
    describe: 'Mirror directory to write; with --to, the folder for config only',
    suggest: 'folders',
    group: destination,
  },
  'to-release-image': {
    type: 'string',
    describe: 'Destination of the release image, such as REGISTRY/REPOSITORY:TAG; may contain ${version}',
    group: destination,
  },
  'to-image-stream': {
    type: 'string',
    describe: 'Image stream of the cluster to import the images into',
    group: destination,
  },
  'to-mirror': {
    type: 'boolean',
    describe: 'Print SRC DST lines for oc image mirror, without mirroring',
    group: destination,
  },
  'skip-release-image': { type: 'boolean', describe: 'Leave out the release image', group: destination },
  'keep-manifest-list': {
    type: 'boolean',
    describe: 'Accepted for compatibility with oc: manifest lists are always kept',
    group: destination,
  },
  'verify-existing': {
    type: 'boolean',
    describe: 'Verify the existing files of the directory, and replace corrupt ones',
    group: destination,
  },
  'print-mirror-instructions': {
    type: 'string',
    choices: ['idms', 'icsp', 'none'],
    // oc accepts them in any case.
    anyCase: true,
    default: 'idms',
    describe: 'Kind of mirror set to write and print',
    group: configuration,
  },
  'config-to-dir': {
    type: 'string',
    describe: 'Folder for configuration manifests, instead of config in --to-dir',
    suggest: 'folders',
    group: configuration,
  },
  'apply-config': {
    type: 'boolean',
    describe: 'Apply the configuration to the cluster after the images are mirrored',
    group: configuration,
  },
  overwrite: {
    type: 'boolean',
    describe: 'Replace values of the cluster’s objects that differ; mirrors are only added',
    group: configuration,
  },
  'graph-data': {
    type: 'string',
    describe: 'Archive of graph data (path or URL): mirror it as an image, with manifests for an update service',
    suggest: 'files',
    alsoTakes: 'url',
    group: configuration,
  },
  'apply-release-image-signature': {
    type: 'boolean',
    describe: 'Apply only the signature of the release to the cluster',
    group: configuration,
  },
  'release-image-signature-to-dir': {
    type: 'string',
    describe: 'Folder for signatures, in files named as those of oc (signature-sha256-….json)',
    suggest: 'folders',
    group: configuration,
  },
  ...registryOptions,
  ...trustOptions,
  'skip-verification': {
    type: 'boolean',
    describe: 'Same as --allow-unsigned; digests are still checked',
    group: 'Trust:',
  },
  ...clusterOptions,
} as const;
