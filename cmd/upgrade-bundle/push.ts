import { openComplete } from '../../lib/bundle/complete.ts';
import type { Bundle } from '../../lib/bundle/bundle.ts';
import { pushBundle, type PushResult } from '../../lib/bundle/deliver/push.ts';
import { checkSigned } from '../../lib/bundle/signedBundle.ts';
import { PluginError } from '../../lib/errors.ts';
import { isRepository, parseRepository, repositoryIn } from '../../lib/oci/reference.ts';
import type { SignedRelease } from '../../lib/release/load.ts';
import { shellWord } from '../../lib/shellWord.ts';
import { Registries } from '../../lib/registry/registries.ts';
import { openAccess } from '../cli/access.ts';
import { checkRepository } from '../cli/checks.ts';
import { defineCommand } from '../cli/command.ts';
import { formatBytes, formatFields } from '../cli/format.ts';
import {
  baseOption,
  bundleArgument,
  outputOption,
  registryOptions,
  signedImagesOption,
  trustOptions,
} from '../cli/options.ts';
import { listExtraImages } from '../cli/extraImages.ts';
import { fetcherOf, nameSigners, trustOf } from '../cli/trust.ts';

const { 'idms-file': _mirrors, ...ownOptions } = registryOptions;

/** `push`: pushes every image of a bundle into a registry. */
export const command = defineCommand({
  details:
    'Checks the signatures before anything is pushed, without a network unless --signature-store names one. The release, its ' +
    'components, extra images and sigstore attachments go into one repository, with their tags and unchanged digests. Existing ' +
    'content is skipped, so an interrupted push resumes if the same command is run again.',
  positionals: bundleArgument,
  options: {
    to: {
      type: 'string',
      required: true,
      describe: 'Where the images go: REGISTRY/REPOSITORY, without a tag',
      check: checkRepository,
    },
    'mount-from': {
      type: 'string',
      repeatable: true,
      describe: 'Another repository of the same registry, to take blobs over from that are there',
    },
    ...baseOption,
    ...outputOption(['json']),
    ...ownOptions,
    ...trustOptions,
    ...signedImagesOption,
  },
  examples: [
    [
      'upgrade-4.20.3-x86_64.tar --to=registry.example.com:5000/openshift/release -a auth.json',
      'Push a bundle into the registry of a site',
    ],
  ],
  resumes: 'images',
  async run(args, { context, terminal, environment }) {
    const to = parseRepository(args.to);
    const mountFrom = args.mountFrom.map((text) => parseNeighbour(text, to.registry));
    const access = await openAccess(args, environment);
    const pushing = { ...context, onEvent: terminal.transfer('Pushing') };
    const bundle = await openComplete(args.bundle, { bases: args.base }, pushing);
    try {
      const registries = new Registries(access, pushing);
      try {
        const options = { concurrency: args.maxPerRegistry, mountFrom };
        const trust = { ...trustOf(args), fetchFile: fetcherOf(registries.connections, pushing) };
        const signed = await checkSigned(bundle, trust, pushing);
        const result = await pushBundle(bundle, signed, registries.repository(to), options, pushing);
        terminal.print(
          args.output === 'json'
            ? JSON.stringify(toPlain(result, signed), null, 2)
            : toWords(result, signed, bundle, args.to),
        );
      } finally {
        await registries.close();
      }
    } finally {
      await bundle.close();
    }
  },
});

function parseNeighbour(text: string, registry: string): string {
  const repository = text.startsWith(`${registry}/`) ? text.slice(registry.length + 1) : text;
  if (isRepository(repository)) return repository;
  throw new PluginError('usage', `--mount-from ${text} is not a repository`);
}

function toPlain(result: PushResult, { signatures }: SignedRelease): Record<string, unknown> {
  const signers = [...signatures.values()]
    .flat()
    .map(({ digest, fingerprint, userId }) => ({ digest, fingerprint, signer: userId }));
  return { ...result, signatures: signers, command: upgradeCommand(result) };
}

// A release image in a private registry is not among the recommended updates, so the update must be explicit.
function upgradeCommand({ release }: PushResult): string {
  return `oc adm upgrade --allow-explicit-upgrade --to-image=${release}`;
}

function toWords(result: PushResult, signed: SignedRelease, { path, metadata, files }: Bundle, to: string): string {
  const { release, images, attachments, tags, blobs, bytes } = result;
  const nothing = blobs.uploaded + blobs.mounted === 0;
  const sources = [...new Set([metadata.release, ...metadata.images].map(repositoryIn))];
  const config = `oc adm-release-mirror-config apply ${shellWord(path)}`;
  const rows = [
    ['Release', release],
    ['Version', `${metadata.version} ${metadata.arch}`],
    ['Signed by', nameSigners(signed)],
    ['Images', `${images}, ${attachments} sigstore attachments, ${tags} tags`],
    ...listExtraImages(result.extraImages),
    [
      'Blobs',
      `${blobs.uploaded} uploaded (${formatBytes(bytes)}), ${blobs.mounted} mounted, ${blobs.skipped} there already`,
    ],
  ];
  const steps = [
    ...(files.some((file) => file.path.startsWith('config/')) ? [['Signature of the release', config]] : []),
    [
      `An ImageDigestMirrorSet with ${to} as the mirror of ${sources.join(', ')}, unless there is one`,
      'oc adm-release-mirror-config makes it',
    ],
    ['The update', upgradeCommand(result)],
  ];
  return [
    nothing ? 'Nothing to do: everything is there' : 'Pushed',
    formatFields(rows),
    'Next, on the cluster:',
    ...steps.map(([what = '', how = ''], index) => `  ${index + 1}. ${what}:\n     ${how}`),
  ].join('\n');
}
