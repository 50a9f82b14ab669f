import { defineCommand } from '../cli/command.ts';
import { mirrorConfig, mirrorOptions } from './options.ts';
import { Lines } from '../../lib/lines.ts';
import { openAccess } from '../cli/access.ts';
import { clusterOpener } from '../cli/clusterAccess.ts';
import { listMapping, mirrorRelease } from '../../lib/mirroring/mirroring.ts';
import { FilledRepositories } from '../../lib/mirroring/filledRepositories.ts';
import { MirrorReport } from './summary.ts';
import { readImageList } from './imageList.ts';
import { readReleases, readRequest, requireTagEach } from './request.ts';
import { listReleases } from '../../lib/mirroring/releases.ts';

/** The default command: mirrors a release and its configuration. */
export const command = defineCommand({
  details:
    'The release is a version, an image, a bundle or mirror directory, or file://openshift/release:TAG with --from-dir. Its ' +
    'signature is checked first. Images and their sigstore signatures keep their digests. Existing content is not fetched again, so ' +
    'an interrupted run resumes if the same command is run again. Without a destination only the configuration is created.',
  positionals: {
    release: {
      type: 'string',
      describe: 'A version such as 4.20.3, an image, a bundle, or file://REPOSITORY:TAG; several separated by commas',
      suggest: 'versions',
    },
  },
  options: mirrorOptions,
  examples: [
    ['4.20.3 --to-dir=/media/usb/mirror -a pull-secret.json', 'Mirror a release to disk'],
    [
      'file://openshift/release:4.20.3-x86_64 --from-dir=/media/usb/mirror --to=registry.example.com:5000/openshift/release --apply-config',
      'Mirror it from disk to the registry of a site, and configure its cluster',
    ],
    ['4.18.20,4.19.12 --to-dir=/media/usb/mirror', 'Mirror two releases, and download shared blobs once'],
    [
      '--path-from=4.18.20 --to-version=4.20.3 --to-dir=/media/usb/mirror',
      'Mirror the releases of an update over several versions',
    ],
    [
      '--channel=stable-4.20 --min=4.20.1 --to-dir=/media/usb/mirror',
      'Mirror the releases of a channel from 4.20.1 on',
    ],
    ['-f imageset.yaml --to-dir=/media/usb/mirror', 'Mirror the releases that a file of oc-mirror names'],
    ['4.20.3 --apply-config', 'Apply only the signature of a release to the cluster'],
  ],
  resumes: 'images',
  config: mirrorConfig,
  async run(args, { context, terminal, environment, stdin }) {
    const choice = readReleases(args);
    const listed = await readImageList(args.imagesFrom, stdin);
    const request = readRequest({ ...args, additionalImage: [...args.additionalImage, ...listed] });
    if (args.skipVerification) {
      context.log('info', '--skip-verification accepts releases without a trusted signature; digests are checked');
    }
    const access = {
      registries: await openAccess(args, environment),
      openCluster: clusterOpener(args, environment, context),
    };
    const mirroring = { ...context, onEvent: terminal.transfer('Mirroring') };
    const releases = await listReleases(choice, request, access, mirroring);
    if (releases.length > 1) requireTagEach(args);
    if (args.toMirror) {
      const pairs: (readonly [source: string, target: string])[] = [];
      for (const release of releases) pairs.push(...(await listMapping({ ...request, ...release }, access, mirroring)));
      const mapping = pairs.map(([source, target]) => ({ source, target }));
      await terminal.printResult(args.output, { mapping }, new Lines(...pairs.map((pair) => pair.join(' '))));
      return;
    }
    const filled = new FilledRepositories();
    const report = new MirrorReport(args, releases.length > 1, { context, terminal });
    try {
      for (const release of releases) {
        report.add(await mirrorRelease({ ...request, ...release }, access, mirroring, filled));
      }
    } finally {
      await report.end();
    }
  },
});
