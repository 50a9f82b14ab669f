import { defineCommand } from '../cli/command.ts';
import { mirrorOptions } from './options.ts';

/** The command without a word: mirrors a release and what goes with it. */
export const command = defineCommand({
  details:
    'The release is named by a version, an image, a bundle or mirror directory, or as file://openshift/release:TAG with --from-dir. ' +
    'Its signature is checked first. Images, with their sigstore signatures, keep their digests; what is there is not fetched again, so that a run that ' +
    'was cut off goes on when the same command is run again. Without a destination only the configuration is made.',
  positionals: {
    release: {
      type: 'string',
      describe: 'A version such as 4.12.4, an image, a bundle, or file://REPOSITORY:TAG',
      suggest: 'versions',
    },
  },
  options: mirrorOptions,
  examples: [
    ['4.12.4 --to-dir=/media/stick/mirror -a pull-secret.json', 'Mirror a release to disk'],
    [
      'file://openshift/release:4.12.4-x86_64 --from-dir=/media/stick/mirror --to=registry.example.com:5000/openshift/release --apply-config',
      'From there into the registry of a site, and tell its cluster',
    ],
    ['4.12.4 --apply-config', 'Only bring the signature of a release into the cluster'],
  ],
  async run(args, session) {
    const { mirrorRelease } = await import('./mirrorRelease.ts');
    await mirrorRelease(args, session);
  },
});
