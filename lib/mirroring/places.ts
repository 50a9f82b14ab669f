import { join } from 'node:path';
import type { ConfigManifest } from '../config/manifest.ts';
import type { Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import { checkSpace } from '../content/files/disk.ts';
import { isAllowed, type Verb } from '../cluster/accessReview.ts';
import { applyManifests, type ApplyOutcome } from '../cluster/apply.ts';
import type { Cluster } from '../cluster/client.ts';
import { formatObjectName } from '../cluster/compatibility.ts';
import { measureMirror } from './measure.ts';
import type { MirrorGroup } from './mirrorGroup.ts';
import { Directory } from '../content/store/directory.ts';

/** Throws `disk-full` unless the file systems of the mirror directories of a plan have space for what is missing there. */
export async function checkDirectorySpace(groups: readonly MirrorGroup[], context: Context): Promise<void> {
  const roots = Map.groupBy(groups, ({ place }) => (place.kind === 'directory' ? place.root : undefined));
  for (const [root, own] of roots) {
    if (root === undefined) continue;
    const { missing } = await measureMirror(own, ({ repository }) => new Directory(root, repository, {}, context));
    // The folder itself may be where another file system is mounted.
    await checkSpace(join(root, 'v2'), missing.bytes);
  }
}

const verbs: Partial<Record<ApplyOutcome['outcome'], Verb>> = { created: 'create', configured: 'update' };

/** Throws `denied` if the user may not make the changes in a cluster that applying manifests to it will need. */
export async function checkRights(
  cluster: Cluster,
  manifests: readonly ConfigManifest[],
  { overwrite }: { readonly overwrite: boolean },
  context: Context,
): Promise<void> {
  const missing: string[] = [];
  for (const { manifest, outcome, error } of await applyManifests(
    cluster,
    manifests,
    { overwrite, dryRun: 'client' },
    context,
  )) {
    const { object } = manifest;
    const verb = isPluginError(error, 'denied') ? 'get' : verbs[outcome];
    if (verb === undefined || (!error && (await isAllowed(cluster, verb, object)))) continue;
    missing.push(`${verb} ${formatObjectName(object)}`);
  }
  if (missing.length === 0) return;
  throw new PluginError('denied', `${cluster.name} does not allow this user to ${missing.join(', ')}`, {
    hint: 'Use the context of an administrator; or only write the configuration to a folder, and apply it later.',
    settings: ['context'],
  });
}
