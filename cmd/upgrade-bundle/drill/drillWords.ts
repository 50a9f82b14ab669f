import type { NodeDrill } from '../../../lib/readiness/drill/drill.ts';
import { formatTable } from '../../cli/format.ts';

/** The number of pods that ran again to show, the slowest first. */
const shown = 10;

/** Formats the results of drills for a person. */
export function formatDrills(drills: readonly NodeDrill[]): string {
  return drills.map(describe).join('\n\n');
}

function describe({ node, result, reboot, version, seconds, message, pods, asked }: NodeDrill): string {
  const how = reboot ? 'a reboot' : 'a restart of the container runtime';
  const missing = pods.filter((pod) => pod.seconds === undefined);
  const running = pods.filter((pod) => pod.seconds !== undefined);
  const slowest = running.toSorted((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0));
  const more = running.length > shown ? [`… and ${running.length - shown} more that run; -o json lists them all`] : [];
  const rows = [...missing, ...slowest.slice(0, shown)].map((pod) => [
    `${pod.namespace}/${pod.name}`,
    pod.owner || '-',
    pod.seconds === undefined ? 'does not run' : `${pod.seconds} s`,
    pod.message ?? '',
  ]);
  const images = asked.map(({ image, count, pods: users, clients }) => [
    image,
    String(count),
    users.map((pod) => `${pod.namespace}/${pod.name}${pod.owner === '' ? '' : ` (${pod.owner})`}`).join(', ') ||
      clients.join(', '),
  ]);
  return [
    `${node}: ${result} (OpenShift ${version}, ${how})`,
    `${running.length} of ${pods.length} pods ran again without a registry, the last after ${seconds} s.`,
    ...(message === undefined ? [] : [`Reason: ${message}.`]),
    ...(rows.length === 0 ? [] : ['', formatTable([['POD', 'OWNER', 'RAN AGAIN', 'REASON'], ...rows]), ...more]),
    '',
    ...(images.length === 0
      ? ['Nothing asked for an image.']
      : [formatTable([['IMAGE ASKED FOR', 'TIMES', 'BY'], ...images], ['TIMES'])]),
  ].join('\n');
}
