import { identifyBundle, type BundleEvidence } from '../../lib/bundle/identity.ts';
import { checkAgents } from '../../lib/cluster/agentRefusal.ts';
import { allowBundle, type BundleRequest } from '../../lib/cluster/bundleRecord.ts';
import { phaseOf, stores } from '../../lib/cluster/upgradeBundle.ts';
import type { Context } from '../../lib/context.ts';
import { PluginError } from '../../lib/errors.ts';
import { hexOf, isDigest, type Digest } from '../../lib/oci/digest.ts';
import { openCluster } from '../clusterAccess.ts';
import { defineCommand, type Arguments } from '../command.ts';
import { clusterAccessOptions } from '../options.ts';
import { offlineTrustOf, offlineTrustOptions } from './trust.ts';

/** `apply`: the bundle that the cluster may be updated with. */
export const command = defineCommand({
  details:
    'Allows one bundle by its digest, in an UpgradeBundle of the cluster. The bundle itself stays where it is: the agents find it on a stick in one of the nodes, ' +
    'or where --device says, load it into every node, and begin the update unless it is held. Where they have found it already, and wait for ' +
    'permission, this gives it. What is given can be the bundle, or the .yaml or .sha256 that stands beside it. Of a bundle it is checked first who signed the ' +
    'release in it, without a network; the agents check that again, and every byte. What they would refuse by the trust options of install, it refuses too.',
  positionals: {
    bundle: {
      type: 'string',
      suggest: 'files',
      describe: 'A bundle, or the .yaml or .sha256 beside it, on this machine',
    },
  },
  options: {
    device: { type: 'string', describe: 'Where a node has the bundle: a device or a file of it, such as /dev/sdb' },
    digest: {
      type: 'string',
      describe:
        'The digest that the bundle must have (sha256:<64 hex digits>), instead of or besides a file that says so',
    },
    hold: { type: 'boolean', describe: 'Load everything, then wait for “resume” before the update itself begins' },
    store: { type: 'string', choices: stores, describe: 'Where the nodes keep the images' },
    ...offlineTrustOptions,
    ...clusterAccessOptions,
  },
  examples: [
    ['upgrade-4.19.4-x86_64.tar.yaml', 'Allow the bundle that this file was made with'],
    ['upgrade-4.19.4-x86_64.tar --hold', 'Load it on all nodes, and begin when told to'],
    ['--device=/dev/sdb --digest=sha256:…', 'Allow what a device of some node holds'],
  ],
  async run(args, { context, terminal, environment }) {
    const hashing = { ...context, onEvent: terminal.transfer('Reading') };
    const { request, evidence } = await readRequest(args, hashing);
    const cluster = await openCluster(args, environment, context);
    try {
      await checkAgents(cluster, evidence, offlineTrustOf(args), context);
      const { bundle, outcome } = await allowBundle(cluster, request);
      terminal.print(`upgradebundle/${bundle.metadata.name} ${outcome}`);
      const next = bundle.status ? `It is ${phaseOf(bundle)}.` : 'The agents look for it now.';
      terminal.print(`${next} Follow it: oc adm-upgrade-bundle status -w`);
    } finally {
      cluster.close();
    }
  },
});

interface Asked extends Arguments<typeof offlineTrustOptions> {
  readonly bundle: string | undefined;
  readonly device: string | undefined;
  readonly digest: string | undefined;
  readonly hold: boolean;
  readonly store: BundleRequest['store'];
}

async function readRequest(
  args: Asked,
  context: Context,
): Promise<{ request: BundleRequest; evidence: BundleEvidence | undefined }> {
  const { bundle, device: file, store } = args;
  const digest = readDigest(args.digest);
  if (bundle === undefined && digest === undefined) {
    throw new PluginError('usage', 'which bundle? Name a file, or give --digest', {
      hint: 'The digest is in the .sha256 file that stands beside the bundle.',
    });
  }
  const own = bundle === undefined ? undefined : await identifyBundle(bundle, offlineTrustOf(args), context);
  if (own && digest !== undefined && own.digest !== digest) {
    throw new PluginError('digest-mismatch', `${String(bundle)} has another digest than --digest: ${own.digest}`, {
      hint: 'One of the two is not what it should be. Do not apply it before you know which.',
    });
  }
  const hold = args.hold ? true : undefined;
  const named = own ?? (digest && { name: `bundle-${hexOf(digest).slice(0, 12)}`, digest });
  if (!named) throw new PluginError('internal', 'a bundle without a digest');
  return { request: { name: named.name, digest: named.digest, file, hold, store }, evidence: own?.evidence };
}

function readDigest(text: string | undefined): Digest | undefined {
  if (text === undefined || isDigest(text)) return text;
  throw new PluginError('usage', '--digest must be sha256: and 64 hex digits');
}
