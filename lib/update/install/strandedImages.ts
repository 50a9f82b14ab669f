import type { Cluster } from '#cluster/client';
import { clusterVersionReference } from '#cluster/version';
import { digestIn } from '#content/oci';
import { PluginError } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import { formerStorePath, storageFile } from '#node/machine';
import { listOwnSets, ownership } from '#readiness/nodes';
import { agentNamespace } from '../record/upgradeBundle.ts';
import { surveyAgents } from './agentSurvey.ts';

/**
 * Prints the names of the images that the additional store has, and that the main store lacks or has without all
 * layers. containers/storage writes the fields of an image in this order. The layers of the main store are the folders
 * of its driver.
 */
const listScript = `store=/host$1
main=$(sed -nE 's/^[[:space:]]*graphroot[[:space:]]*=[[:space:]]*"([^"]+)".*/\\1/p' /host${storageFile} 2>/dev/null)
main=/host\${main:-/var/lib/containers/storage}
list() {
  file=$1/overlay-images/images.json
  [ -e "$file" ] || return 0
  grep -oE '"names":\\[[^]]*\\](,"names-history":\\[[^]]*\\])?,"layer":"[0-9a-f]+"' "$file" | while IFS= read -r record; do
    layer=\${record##*:\\"}
    names=\${record#\\"names\\":[}
    names=\${names%%]*}
    for name in \${names//,/ }; do echo "\${name//\\"/} \${layer%\\"}"; done
  done
}
whole() {
  [ -d "$main/overlay/$1" ] || return 1
  [ -e "$main/overlay/$1/lower" ] || return 0
  for link in $(tr : ' ' < "$main/overlay/$1/lower"); do [ -e "$main/overlay/$link" ] || return 1; done
}
in_main() {
  list "$main" | while read -r name layer; do whole "$layer" && echo "$name"; done
}
only=$(comm -23 <(list "$store" | cut -d' ' -f1 | sort -u) <(in_main | sort -u))
echo "images: $(echo -n "$only" | grep -c .)"
echo "$only" | head --bytes=60000`;

/**
 * Checks that no image is only in the additional store of an earlier version, by running a script in the agents’ pods.
 * Checks the images that pins of the running release list, or all images if nothing pins them. Throws `conflict` with
 * the nodes on which images would be lost, and `not-ready` if a node cannot be asked.
 */
export async function requireMainImages(cluster: Cluster): Promise<void> {
  const needed = await listNeeded(cluster);
  const { pods } = await surveyAgents(cluster);
  const silent = pods.filter(({ running }) => !running).map(({ node, reason }) => `${node}: ${reason}`);
  if (silent.length > 0) {
    throw new PluginError('not-ready', `cannot check which images would be lost: ${silent.join('; ')}`, {
      hint: 'Run this again when an agent runs on each node, or force the removal of the store without this check.',
      settings: ['force'],
    });
  }
  const stranded: string[] = [];
  for (const { node, pod } of pods) {
    const place = { namespace: agentNamespace, pod, container: 'agent' };
    const command = ['/bin/bash', '-c', listScript, 'bash', formerStorePath];
    const { stdout, stderr } = await cluster.exec({ ...place, command });
    const [count, ...names] = stdout.trimEnd().split('\n');
    if (!count?.startsWith('images: '))
      throw new PluginError('command-failed', `cannot list the images of ${node}: ${stderr.trim()}`);
    const images = names.filter((name) => !needed || needed.has(digestOfName(name)));
    if (images.length > 0) stranded.push(`${node} (${images.length} images)`);
  }
  if (stranded.length === 0) return;
  const more = stranded.length > 5 ? ` and ${stranded.length - 5} more nodes` : '';
  throw new PluginError(
    'conflict',
    `the images of the running release are only in the additional store of ${stranded.slice(0, 5).join(', ')}${more}`,
    {
      hint:
        'Pods cannot start without the store. Agents of this version load into the main stores: run oc adm-upgrade-bundle ' +
        'install, clean and retain with the bundle of the running release, or update with the next bundle. Then run this again.',
    },
  );
}

/** Returns the digests of the images that the pins of the running release name; undefined if there are no such pins. */
async function listNeeded(cluster: Cluster): Promise<Set<string> | undefined> {
  const version = await cluster.read(clusterVersionReference);
  const running = textOf(fieldsAt(version, 'status', 'desired')['image']);
  if (running === undefined) return undefined;
  const sets = (await listOwnSets(cluster)).filter(({ metadata: { annotations = {} } }) => {
    const release = annotations[ownership.release];
    return release !== undefined && digestIn(release) === digestIn(running);
  });
  const images = sets.flatMap(({ spec }) => listOf(fieldsOf(spec)['pinnedImages']));
  return images.length === 0 ? undefined : new Set(images.map(({ name }) => digestOfName(String(name))));
}

function digestOfName(name: string): string {
  return name.slice(name.indexOf('@') + 1);
}
