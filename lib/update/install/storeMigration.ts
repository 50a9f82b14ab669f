import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { allowBundle, listRecords } from '../bundleRecord.ts';
import { phaseOf, summarizeNodes } from '../upgradeBundle.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import { clusterVersionReference } from '../../kubernetes/clusterVersion.ts';
import { awaitDone, type WaitOptions } from '../../waiting.ts';
import { isDigest } from '../../oci/digest.ts';
import { isInstalled } from '../releaseState.ts';
import { findStrandedImages, type StrandedImages } from './strandedImages.ts';

/**
 * Checks that no image of the running release is only in an additional store. With `migrate`, has the agents load the
 * bundle of the running release into the main stores, where it stays pinned. Throws `conflict` with the nodes if images
 * would be lost, and `not-ready` after the timeout.
 */
export async function secureImages(
  cluster: Cluster,
  { migrate, ...wait }: WaitOptions & { readonly migrate: boolean },
  context: Context,
): Promise<void> {
  const stranded = await findStrandedImages(cluster);
  if (stranded.length === 0) return;
  if (!migrate) throw wouldLose(stranded);
  await loadIntoMain(cluster, wait, context);
  const rest = await findStrandedImages(cluster);
  if (rest.length > 0) throw wouldLose(rest);
}

async function loadIntoMain(cluster: Cluster, wait: WaitOptions, context: Context): Promise<void> {
  const version = await cluster.read(clusterVersionReference);
  const records = await listRecords(cluster);
  const bundle = records.find(
    ({ status, spec }) =>
      status?.release !== undefined &&
      spec.bundle.digest !== undefined &&
      version &&
      isInstalled(version, status.release),
  );
  const digest = bundle?.spec.bundle.digest;
  if (!bundle || digest === undefined || !isDigest(digest)) {
    throw new PluginError('not-found', 'no UpgradeBundle has the digest of the bundle of the running release', {
      hint: 'Load it into the main store with oc adm-upgrade-bundle apply, then run this again.',
    });
  }
  const name = `migrate-${bundle.metadata.name}`.slice(0, 253);
  const allowExtraImages = (bundle.spec.allowExtraImages ?? []).filter(isDigest);
  await allowBundle(cluster, {
    name,
    digest,
    store: 'main',
    hold: false,
    ...(allowExtraImages.length > 0 && { allowExtraImages }),
  });
  context.log(
    'info',
    `loading the running release into the main store of each node: insert the USB drive with the bundle ${digest}`,
  );
  let last = '';
  const check = async (): Promise<PluginError | undefined> => {
    const record = (await listRecords(cluster)).find(({ metadata }) => metadata.name === name);
    const phase = record ? phaseOf(record) : 'Failed';
    const { nodesReady } = summarizeNodes(record?.status?.nodes ?? []);
    const words = `${name}: ${phase}, ${nodesReady.replace('/', ' of ')} nodes ready`;
    if (words !== last) context.log('info', words);
    last = words;
    if (phase === 'Completed') return undefined;
    const error = new PluginError('not-ready', `the images are not in the main stores yet: ${words}`, {
      hint: 'See oc adm-upgrade-bundle status, then run this again: it resumes. Nothing has been removed.',
    });
    if (phase === 'Failed') throw error;
    return error;
  };
  await awaitDone(check, wait, context);
}

function wouldLose(stranded: readonly StrandedImages[]): PluginError {
  const nodes = stranded.map(({ node, images }) => `${node} (${images.length} images)`);
  const more = nodes.length > 5 ? ` and ${nodes.length - 5} more nodes` : '';
  return new PluginError(
    'conflict',
    `the images of the running release are only in the additional store of ${nodes.slice(0, 5).join(', ')}${more}`,
    {
      hint: 'Pods cannot start without the store. Load the images into the main stores first, or keep the store on the nodes.',
      settings: ['migrate', 'keepStore'],
    },
  );
}
