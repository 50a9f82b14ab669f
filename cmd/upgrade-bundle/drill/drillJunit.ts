import type { NodeDrill } from '../../../lib/readiness/drill/drill.ts';
import { formatJunit, type JunitCase, type JunitSuite } from '../../cli/junit.ts';

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
    const wanted = asked.filter((each) => each.pods.some((user) => `${user.namespace}/${user.name}` === name));
    return {
      ...{ classname: `${node}.${pod.owner || 'Pod'}`, name, time: pod.seconds ?? 0 },
      failure: pod.seconds === undefined ? { type: 'not running', message: pod.message ?? '' } : undefined,
      output: wanted.length > 0 ? wanted.map(({ image }) => `asked for ${image}`).join('\n') : undefined,
    };
  });
  return { name: node, timestamp: started, time: seconds, cases: [own, ...cases] };
}
