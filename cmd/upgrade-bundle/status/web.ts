import type { Context } from '../../../lib/context.ts';
import { isPluginError } from '../../../lib/errors.ts';
import { servePage } from '../../../lib/content/server/pageServer.ts';
import type { NodeProgress, UpgradeBundle } from '../../../lib/update/upgradeBundle.ts';
import { formatBytes } from '../../../lib/byteSize.ts';
import type { Terminal } from '../../cli/terminal.ts';
import { statusPage } from './statusPage.ts';
import { accentOf, describeImages, viewStatus, type ClusterStatus } from './statusView.ts';

/** What the page follows: UpgradeBundles as they change, and the rest of the status at each change. */
export interface FollowedUpdate {
  readonly bundles: AsyncIterable<UpgradeBundle | undefined>;
  readonly read: (bundle: UpgradeBundle | undefined) => Promise<ClusterStatus>;
}

/** Serves a page that follows an update, to this machine only. Ends if it is interrupted. */
export async function showInBrowser(
  { bundles, read }: FollowedUpdate,
  { context, terminal }: { readonly context: Context; readonly terminal: Terminal },
): Promise<void> {
  let data = toData({ bundle: undefined, elapsed: undefined, mirrors: [] });
  const server = await servePage({ ...statusPage, data: () => data }, context);
  try {
    terminal.print(server.url);
    context.log('info', 'Open this page in a browser of this machine. Only this URL shows it. Ctrl-C ends it.');
    for await (const bundle of bundles) data = toData(await read(bundle));
  } catch (error) {
    // An interruption is the normal end of a server.
    if (!isPluginError(error, 'interrupted')) throw error;
  } finally {
    await server.close();
  }
}

function toData(status: ClusterStatus): object {
  const { nodes, problem, ...view } = viewStatus(status);
  return { ...view, problem: problem.map((words) => words.join(': ')), nodes: nodes.map(describeNode) };
}

function describeNode(node: NodeProgress): object {
  const { name, phase, imagesLoaded, imagesTotal, bytes, message = '' } = node;
  const share = imagesTotal === 0 ? 0 : imagesLoaded / imagesTotal;
  const images = imagesTotal === 0 ? describeImages(node) : `${describeImages(node)} images`;
  return { name, phase, accent: accentOf(phase) ?? '', images, share, bytes: formatBytes(bytes), message };
}
