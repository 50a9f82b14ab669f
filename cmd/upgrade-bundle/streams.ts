import { openBundle, checkSigned } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { readStreamsOf, type OSImageStreams } from '#release/payload';
import { Lines } from '#text';
import { addAgentTrust } from '#update/install';
import { planOSImageStream, readStreamSite, writeOSImageStream, type StreamImages } from '#update/record';
import { openCluster } from '../cli/access.ts';
import { defineCommand, type Arguments } from '../cli/command.ts';
import { formatYaml } from '../cli/format.ts';
import { bundleArgument, clusterAccessOptions, outputOption } from '../cli/options.ts';
import { offlineTrustOf, offlineTrustOptions } from '../cli/trust.ts';

/** `streams`: describes the operating system streams of a release in a cluster without a registry. */
export const command = defineCommand({
  details:
    'From 4.23 on, the machine config controller of a release starts nothing else before it has the OSImageStream ' +
    '“cluster” for this release, and asks a registry for its content. On a cluster that is updated without the ' +
    'agents and without a registry, this prints that object, as the controller would make it for this cluster. With ' +
    '--apply it writes it. Run that when the update has been requested and the version operator has created the ' +
    'definition of the kind. The signature of the release is checked without a network, also with the keys that the ' +
    'agents of the cluster trust.',
  positionals: bundleArgument,
  options: {
    apply: { type: 'boolean', describe: 'Write the object to the cluster, with its status' },
    release: { type: 'string', describe: 'Version, if the bundle has several releases (default: the last one)' },
    ...outputOption(),
    ...offlineTrustOptions,
    ...clusterAccessOptions,
  },
  examples: [
    ['upgrade-5.0.3-x86_64.tar', 'Print the object for the cluster'],
    ['upgrade-5.0.3-x86_64.tar --apply', 'Write it, while the update runs'],
  ],
  async run(args, { context, terminal, environment }) {
    using cluster = await openCluster(args, environment, context);
    const { version, images, streams } = await readStreams(args, cluster, context);
    if (!streams) {
      context.log('info', `${version} needs no operating system streams described in the cluster`);
      return;
    }
    const { object, isDesired, isServed, isThere, isInUse } = planOSImageStream(
      await readStreamSite(cluster),
      streams,
      images,
    );
    if (!args.apply) {
      terminal.print(Lines.split(args.output === 'json' ? JSON.stringify(object, null, 2) : await formatYaml(object)));
      return;
    }
    if (!isDesired) {
      const message = `cannot describe the streams of ${version}: the cluster does not update to it`;
      const hint = `Request the update first: the controller of the running release would take the object for its own.`;
      throw new PluginError('not-ready', message, { hint });
    }
    if (!isServed) {
      throw new PluginError('not-served', `the cluster does not serve OSImageStream v1 yet`, {
        hint: 'The version operator creates its definition during the update. Run this again until it succeeds.',
      });
    }
    if (isInUse && !isThere) {
      throw new PluginError('not-ready', `the machine config controller of ${version} does not run alone yet`, {
        hint: 'An earlier one would refuse the object, and its pools become degraded. Run this again later.',
      });
    }
    const outcome = await writeOSImageStream(cluster, object);
    const { commit = '', commitSource } = streams;
    const words = `osimagestream.machineconfiguration.openshift.io/cluster ${outcome}`;
    await terminal.printResult(args.output, { name: 'cluster', version, outcome, commit, commitSource }, words);
  },
});

async function readStreams(
  args: Arguments<typeof offlineTrustOptions> & { readonly bundle: string; readonly release: string | undefined },
  cluster: Cluster,
  context: Context,
): Promise<{ version: string; images: StreamImages; streams: OSImageStreams | undefined }> {
  const trust = await addAgentTrust(cluster, offlineTrustOf(args), context);
  await using bundle = await openBundle(args.bundle, context);
  const releases = (await checkSigned(bundle, trust, context)).releases.map(({ release }) => release);
  const chosen = args.release === undefined ? releases.at(-1) : releases.find((each) => each.version === args.release);
  if (!chosen) {
    const versions = releases.map((each) => each.version).join(', ');
    throw new PluginError('usage', `${args.bundle} has no release ${args.release ?? ''}; it has ${versions}`);
  }
  const { version, pullspec: release } = chosen;
  const images = { version, release, operator: chosen.images.get('machine-config-operator')?.pullspec ?? '' };
  const streams = await readStreamsOf(chosen, () => bundle.content, context, { executable: true });
  return { version, images, streams };
}
