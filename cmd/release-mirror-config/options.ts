import { clusterOptions, dryRunOption, outputOption, registryOptions, trustOptions } from '../cli/options.ts';

const destination = 'Destination:';
const configuration = 'Configuration:';

/**
 * The options of the mirror command: the options of `oc adm release mirror` with the same names, and additional ones.
 */
export const mirrorOptions = {
  from: { type: 'string', describe: 'The release, instead of the argument', suggest: 'versions' },
  'path-from': {
    type: 'string',
    describe: 'Version to update from: mirror all releases on the shortest supported path to --to-version',
    suggest: 'versions',
  },
  'to-version': { type: 'string', describe: 'Version to update to, with --path-from', suggest: 'versions' },
  'from-dir': {
    type: 'string',
    describe: 'Mirror directory or bundle that file:// and versions are looked up in',
    suggest: 'files',
  },
  arch: {
    type: 'string',
    choices: ['x86_64', 'aarch64', 'ppc64le', 's390x', 'multi', 'amd64', 'arm64'],
    describe: 'Architecture for a version; the cluster’s own, or else x86_64, by default',
  },
  'graph-url': {
    type: 'string',
    describe: 'Update graph that finds the image of a version, instead of the cluster’s own or the public one',
  },
  'release-repository': {
    type: 'string',
    describe:
      'Repository that release images are published in: a version is looked up by its tag there, and not in a graph',
  },
  ...dryRunOption,
  ...outputOption(['json']),
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
    describe: 'Where the release image goes instead, such as REGISTRY/REPOSITORY:TAG',
    group: destination,
  },
  'to-image-stream': {
    type: 'string',
    describe: 'Image stream of the cluster to import the images into',
    group: destination,
  },
  'to-mirror': {
    type: 'boolean',
    describe: 'Print what would go where, as SRC DST lines, and do nothing',
    group: destination,
  },
  'skip-release-image': { type: 'boolean', describe: 'Leave out the release image', group: destination },
  'keep-manifest-list': {
    type: 'boolean',
    describe: 'Accepted as oc does: lists are always kept byte for byte',
    group: destination,
  },
  'verify-existing': {
    type: 'boolean',
    describe: 'Read what is in the directory already, and replace what is corrupt',
    group: destination,
  },
  'print-mirror-instructions': {
    type: 'string',
    choices: ['idms', 'icsp', 'none'],
    // oc accepts them in any case.
    anyCase: true,
    default: 'idms',
    describe: 'Which kind of mirror set is written and printed, if any',
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
    describe: 'Apply the configuration to the cluster once the images are there',
    group: configuration,
  },
  overwrite: {
    type: 'boolean',
    describe: 'Replace objects of the cluster that have other content',
    group: configuration,
  },
  'graph-data': {
    type: 'string',
    describe: 'Archive of graph data (path or URL): make an image of it and what an update service needs',
    suggest: 'files',
    group: configuration,
  },
  'apply-release-image-signature': {
    type: 'boolean',
    describe: 'Apply only the signature of the release to the cluster',
    group: configuration,
  },
  'release-image-signature-to-dir': {
    type: 'string',
    describe: 'Folder for signatures in files named as oc does (signature-sha256-….json)',
    suggest: 'folders',
    group: configuration,
  },
  ...registryOptions,
  ...trustOptions,
  'skip-verification': {
    type: 'boolean',
    describe: 'As --allow-unsigned; digests are still checked',
    group: 'Trust:',
  },
  ...clusterOptions,
} as const;
