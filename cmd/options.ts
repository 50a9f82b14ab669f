import type { OptionRecord } from './command.ts';

const registry = 'Registries:';
const trust = 'Trust:';

/** Options of every command that talks to a registry. */
export const registryOptions = {
  'pull-secret': {
    type: 'string',
    alias: ['a', 'registry-config'],
    describe: 'File with the credentials for the registries (a pull secret or an auth.json)',
    group: registry,
  },
  'certificate-authority': {
    type: 'string',
    describe: 'PEM file with certificate authorities to trust besides those of the system',
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
    describe: 'How many transfers run at once against one registry',
    group: registry,
  },
  'idms-file': {
    type: 'string',
    describe:
      'YAML file with an ImageDigestMirrorSet, ImageTagMirrorSet or ImageContentSourcePolicy: its mirrors are tried first',
    group: registry,
  },
} as const satisfies OptionRecord;

/** Options of every command that checks who signed a release. */
export const trustOptions = {
  'signature-store': {
    type: 'string',
    describe: 'URL or folder with release signatures, instead of those the release names',
    group: trust,
  },
  'signature-keyring': {
    type: 'string',
    repeatable: true,
    describe: 'File with OpenPGP public keys; a key counts when its fingerprint is trusted',
    group: trust,
  },
  'trust-fingerprint': {
    type: 'string',
    repeatable: true,
    describe: 'Fingerprint of a key to trust besides the Red Hat release key',
    group: trust,
  },
  'allow-unsigned': {
    type: 'boolean',
    describe: 'Go on when the release has no signature by a trusted key',
    group: trust,
  },
} as const satisfies OptionRecord;

/** Options that choose a release: a version and an architecture, or an image. */
export const releaseOptions = {
  version: {
    type: 'string',
    describe: 'Version of the release, such as 4.12.4',
  },
  arch: {
    type: 'string',
    default: 'x86_64',
    choices: ['x86_64', 'aarch64', 'ppc64le', 's390x', 'multi', 'amd64', 'arm64'],
    describe: 'Architecture of the release; multi is all of them',
  },
  'release-image': {
    type: 'string',
    describe: 'The release payload image, by tag or digest, instead of a version',
  },
  'release-repository': {
    type: 'string',
    default: 'quay.io/openshift-release-dev/ocp-release',
    describe: 'Repository where versions are looked up',
  },
  'from-dir': {
    type: 'string',
    describe: 'Mirror directory to read instead of a registry',
  },
} as const satisfies OptionRecord;

/** The `-o` of a command with a result; `choices` are the machine-readable forms it offers besides plain words. */
export function formatOption<const C extends readonly string[]>(choices: C) {
  return {
    format: { type: 'string', alias: 'o', choices, describe: 'Print the result in this form instead of as words' },
  } as const satisfies OptionRecord;
}
