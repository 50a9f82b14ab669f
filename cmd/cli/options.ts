import { PluginError } from '#errors';
import { parseFingerprint } from '#release/signature';
import { usualRepository } from '#release/version';
import type { OptionRecord } from './command.ts';
import { checkImage, checkRepository, checkSecretFile, checkSignatureStore, parseDuration } from './values.ts';

const registry = 'Registries:';
const trust = 'Trust:';
const cluster = 'Cluster:';

/** The argument of every command that reads a bundle. */
export const bundleArgument = {
  bundle: {
    type: 'string',
    required: true,
    describe: 'A bundle, one of its volumes, a device that contains a bundle, or a mirror directory',
    suggest: 'bundles',
  },
} as const satisfies OptionRecord;

/** The option of every command that reads the content of a bundle. */
export const baseOption = {
  base: {
    type: 'string',
    repeatable: true,
    describe: 'For a delta bundle: the bundle or mirror directory of its base release, if it is not in the same folder',
    suggest: 'bundles',
  },
} as const satisfies OptionRecord;

/** The options of every command that uses a registry. */
export const registryOptions = {
  'pull-secret': {
    type: 'string',
    alias: ['a', 'registry-config'],
    describe: 'File with the credentials for the registries (a pull secret or an auth.json)',
    suggest: 'files',
    check: checkSecretFile,
    group: registry,
  },
  'certificate-authority': {
    type: 'string',
    describe: 'PEM file with certificate authorities of registries, in addition to those of the system',
    suggest: 'files',
    group: registry,
  },
  insecure: {
    type: 'boolean',
    describe: 'Do not verify certificates, and fall back to plain HTTP',
    group: registry,
  },
  'max-per-registry': {
    type: 'number',
    default: 6,
    range: [1, 64],
    describe: 'Maximum number of parallel transfers with one registry',
    group: registry,
  },
  'retry-timeout': {
    type: 'string',
    default: '10m',
    describe: 'Time to retry while a registry limits requests (429 or 503 with Retry-After), such as 90s or 2h',
    check: (text) => void parseDuration(text),
    group: registry,
  },
  'idms-file': {
    type: 'string',
    describe:
      'YAML file with an ImageDigestMirrorSet, ImageTagMirrorSet or ImageContentSourcePolicy, whose mirrors are ' +
      'tried first',
    suggest: 'files',
    group: registry,
  },
} as const satisfies OptionRecord;

/** The options of every command that checks release signatures. */
export const trustOptions = {
  'signature-store': {
    type: 'string',
    describe: 'URL or folder with release signatures, instead of the stores that the release names',
    suggest: 'folders',
    check: checkSignatureStore,
    group: trust,
  },
  'signature-keyring': {
    type: 'string',
    repeatable: true,
    describe: 'File with OpenPGP public keys; a key is used if its fingerprint is trusted',
    suggest: 'files',
    group: trust,
  },
  'trust-fingerprint': {
    type: 'string',
    repeatable: true,
    describe: 'Fingerprint of a key to trust in addition to the Red Hat release key',
    check: (text) => void parseFingerprint(text),
    group: trust,
  },
  'allow-unsigned': {
    type: 'boolean',
    describe: 'Continue if the release has no signature by a trusted key',
    group: trust,
  },
} as const satisfies OptionRecord;

/** The option of commands that name the keys of image policies. */
export const policyKeyOption = {
  'trust-key': {
    type: 'string',
    repeatable: true,
    describe: 'PEM file with a public key that image policies of the release may have, in addition to the Red Hat key',
    suggest: 'files',
    group: trust,
  },
} as const satisfies OptionRecord;

/** The option of every command that uses the images of a bundle. */
export const signedImagesOption = {
  'require-signed-images': {
    type: 'boolean',
    describe: 'Refuse a bundle with images that the release signature does not cover (--extra-image of create)',
    group: trust,
  },
} as const satisfies OptionRecord;

/** The options that choose a release: a version and an architecture, or an image. */
export const releaseOptions = {
  version: {
    type: 'string',
    describe: 'Version of the release, such as 4.20.3',
    suggest: 'versions',
  },
  arch: {
    type: 'string',
    choices: ['x86_64', 'aarch64', 'ppc64le', 's390x', 'multi', 'amd64', 'arm64'],
    describe: 'Architecture of the release, multi for all (default: that of --release-image, else x86_64)',
  },
  'release-image': {
    type: 'string',
    describe: 'Release image to bundle, by tag or digest, instead of a version',
    check: checkImage,
  },
  'release-repository': {
    type: 'string',
    describe: `Repository to look up versions in (default: that of the bundle in --from-dir, else ${usualRepository})`,
    check: checkRepository,
  },
  'from-dir': {
    type: 'string',
    describe: 'Mirror directory or bundle to read instead of a registry',
    suggest: 'bundles',
  },
} as const satisfies OptionRecord;

/**
 * The options of every command that uses a cluster, with the names of kubectl. Only its `--certificate-authority` has
 * another name, because that is for registries, as in `oc adm release mirror`.
 */
export const clusterOptions = {
  kubeconfig: {
    type: 'string',
    describe: 'Path to the kubeconfig file to use for CLI requests',
    suggest: 'files',
    group: cluster,
  },
  context: {
    type: 'string',
    describe: 'The name of the kubeconfig context to use',
    suggest: 'contexts',
    group: cluster,
  },
  cluster: {
    type: 'string',
    describe: 'The name of the kubeconfig cluster to use',
    suggest: 'clusters',
    group: cluster,
  },
  user: { type: 'string', describe: 'The name of the kubeconfig user to use', suggest: 'users', group: cluster },
  server: { type: 'string', alias: 's', describe: 'The address and port of the Kubernetes API server', group: cluster },
  token: { type: 'string', describe: 'Bearer token for authentication to the API server', group: cluster },
  namespace: {
    type: 'string',
    alias: 'n',
    describe: 'If present, the namespace scope for this CLI request',
    group: cluster,
  },
  username: { type: 'string', describe: 'Username for basic authentication to the API server', group: cluster },
  password: { type: 'string', describe: 'Password for basic authentication to the API server', group: cluster },
  as: { type: 'string', describe: 'Username to impersonate for the operation', group: cluster },
  'as-group': { type: 'string', repeatable: true, describe: 'Group to impersonate for the operation', group: cluster },
  'as-user-extra': {
    type: 'string',
    repeatable: true,
    describe: 'Extra field (KEY=VALUE) of the user to impersonate for the operation',
    group: cluster,
  },
  'as-uid': { type: 'string', describe: 'UID to impersonate for the operation', group: cluster },
  'client-certificate': {
    type: 'string',
    describe: 'Path to a client certificate file for TLS',
    suggest: 'files',
    group: cluster,
  },
  'client-key': {
    type: 'string',
    describe: 'Path to a client key file for TLS',
    suggest: 'files',
    group: cluster,
  },
  'cluster-certificate-authority': {
    type: 'string',
    describe: 'Path to a cert file for the certificate authority of the API server',
    suggest: 'files',
    group: cluster,
  },
  'insecure-skip-tls-verify': {
    type: 'boolean',
    describe: 'If true, the server’s certificate will not be checked for validity',
    group: cluster,
  },
  'tls-server-name': {
    type: 'string',
    describe: 'Server name to use for server certificate validation',
    group: cluster,
  },
  'request-timeout': {
    type: 'string',
    describe: 'The length of time to wait before giving up on a single server request, such as 30s; 0 means no timeout',
    group: cluster,
  },
} as const satisfies OptionRecord;

/** The same for a command that uses no registry, which takes the name of kubectl too. */
export const clusterAccessOptions = {
  ...clusterOptions,
  'cluster-certificate-authority': {
    ...clusterOptions['cluster-certificate-authority'],
    hiddenAlias: 'certificate-authority',
  },
} as const satisfies OptionRecord;

/** The `--dry-run` of kubectl, with its spellings. */
export const dryRunOption = {
  'dry-run': {
    type: 'string',
    choices: ['none', 'client', 'server'],
    default: 'none',
    describe:
      'With client, only print what would be done; with server, submit requests without persisting the resource',
  },
} as const satisfies OptionRecord;

/** Returns the same option for a command that changes no cluster, which has no server to ask. */
export function dryRunOf(describe: string) {
  return { 'dry-run': { ...dryRunOption['dry-run'], describe } } as const satisfies OptionRecord;
}

/** Returns the `--yes` of a command that destroys data. Without it, the command only prints what it would do. */
export function yesOption(describe: string) {
  return { yes: { type: 'boolean', describe } } as const satisfies OptionRecord;
}

/** The last line of a command that destroys data and was not confirmed. */
export const askForYes = 'Nothing was removed. To remove this, run the same command with --yes.';

/** Returns the `-o, --output` of a command with a result: json and yaml, and formats in addition. */
export function outputOption<const C extends readonly string[]>(...more: C) {
  const choices = ['json', 'yaml', ...more] as const;
  return {
    output: { type: 'string', alias: 'o', hiddenAlias: 'format', choices, describe: 'Output format' },
  } as const satisfies OptionRecord;
}

/** Returns the `--output` of a command that writes a bundle: its folder. */
export function bundleFolderOption() {
  return {
    output: {
      type: 'string',
      default: '.',
      describe: 'Folder for the bundle, created if missing',
      suggest: 'folders',
      check: checkPlace,
    },
  } as const satisfies OptionRecord;
}

/** Does the same as `outputOption`, for a command whose `--output` is a folder or a file. */
export function formatOption() {
  const choices = ['json', 'yaml'] as const;
  const check = (text: string): void => {
    if (/^\.*$|[/\\]/.test(text))
      throw new PluginError('usage', `“${text}” is not an output format`, {
        hint: `The place is --output=${text}.`,
      });
  };
  return {
    format: { type: 'string', alias: 'o', choices, check, describe: 'Output format' },
  } as const satisfies OptionRecord;
}

/** Throws `usage` for the name of a format as the value of an `--output` that is a place. */
export function checkPlace(text: string): void {
  if (!['json', 'yaml'].includes(text)) return;
  throw new PluginError('usage', `“${text}” is a format, and --output is a place`, {
    hint: `The format is -o ${text}. For a place of that name, give ./${text}.`,
  });
}
