import type { NodeDrill } from '../../../lib/readiness/drill/drill.ts';
import { formatTable } from '../../cli/format.ts';
import { formatJunit, type JunitCase, type JunitSuite } from '../../cli/junit.ts';
import { joinParagraphs, Lines } from '../../../lib/lines.ts';

/** The number of pods that ran again to show, the slowest first. */
const shown = 10;

/** Formats the results of drills for a person. */
export function formatDrills(drills: readonly NodeDrill[]): Lines {
  return joinParagraphs(...drills.map(describe));
}

function describe({ node, result, reboot, version, seconds, message, pods, asked }: NodeDrill): Lines {
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
  return new Lines(
    `${node}: ${result} (OpenShift ${version}, ${how})`,
    `${running.length} of ${pods.length} pods ran again without a registry, the last after ${seconds} s.`,
    ...(message === undefined ? [] : [`Reason: ${message}.`]),
    ...(rows.length === 0 ? [] : ['', formatTable([['POD', 'OWNER', 'RAN AGAIN', 'REASON'], ...rows]), ...more]),
    '',
    ...(images.length === 0
      ? ['Nothing asked for an image.']
      : [formatTable([['IMAGE ASKED FOR', 'TIMES', 'BY'], ...images], ['TIMES'])]),
  );
}

/** Formats the results of drills as JUnit XML: a suite for each node, a case for each pod, and one for the node itself. */
export function formatDrillJunit(cluster: string, drills: readonly NodeDrill[]): string {
  return formatJunit(`drill ${cluster}`, drills.map(toSuite));
}

function toSuite({
  node,
  result,
  reboot,
  version,
  started,
  seconds,
  message = '',
  pods,
  asked,
}: NodeDrill): JunitSuite {
  const images = asked.map(
    ({ image, count, clients }) => `${image} was asked for ${count} times by ${clients.join(', ')}`,
  );
  const words = [`OpenShift ${version}, ${reboot ? 'reboot' : 'restart of the container runtime'}`, ...images];
  const own = {
    ...{ classname: node, name: 'starts without a registry', time: seconds, output: words.join('\n') },
    failure: result === 'passed' ? undefined : { type: result, message },
  };
  const cases = pods.map((pod): JunitCase => {
    const name = `${pod.namespace}/${pod.name}`;
    const podImages = asked.filter((each) => each.pods.some((user) => `${user.namespace}/${user.name}` === name));
    return {
      ...{ classname: `${node}.${pod.owner || 'Pod'}`, name, time: pod.seconds ?? 0 },
      failure: pod.seconds === undefined ? { type: 'not running', message: pod.message ?? '' } : undefined,
      output: podImages.length > 0 ? podImages.map(({ image }) => `asked for ${image}`).join('\n') : undefined,
    };
  });
  return { name: node, timestamp: started, time: seconds, cases: [own, ...cases] };
}
