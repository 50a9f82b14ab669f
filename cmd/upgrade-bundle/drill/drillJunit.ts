import type { NodeDrill } from '../../../lib/readiness/drill/drill.ts';
import { escapeXml, tag, xmlDocument } from '../../cli/xml.ts';

/** Formats the results of drills as JUnit XML: a suite for each node, a case for each pod, and one for the node itself. */
export function formatDrillJunit(cluster: string, drills: readonly NodeDrill[]): string {
  const suites = drills.map(formatSuite);
  const totals = {
    name: `drill ${cluster}`,
    tests: drills.reduce((sum, { pods }) => sum + pods.length + 1, 0),
    failures: drills.reduce((sum, drill) => sum + countFailures(drill), 0),
  };
  return xmlDocument(tag('testsuites', totals, ['', ...suites, ''].join('\n')));
}

function countFailures({ result, pods }: NodeDrill): number {
  return pods.filter(({ seconds }) => seconds === undefined).length + (result === 'passed' ? 0 : 1);
}

function formatSuite(drill: NodeDrill): string {
  const { node, result, reboot, version, started, seconds, message = '', pods, asked } = drill;
  const images = asked.map(
    ({ image, count, clients }) => `${image} was asked for ${count} times by ${clients.join(', ')}`,
  );
  const words = [`OpenShift ${version}, ${reboot ? 'reboot' : 'restart of the container runtime'}`, ...images].join(
    '\n',
  );
  const own = tag(
    'testcase',
    { classname: node, name: 'starts without a registry', time: seconds },
    (result === 'passed' ? '' : tag('failure', { type: result, message })) + tag('system-out', {}, escapeXml(words)),
  );
  const cases = pods.map((pod) => {
    const name = `${pod.namespace}/${pod.name}`;
    const wanted = asked.filter((each) => each.pods.some((user) => `${user.namespace}/${user.name}` === name));
    const content = [
      pod.seconds === undefined ? tag('failure', { type: 'not running', message: pod.message ?? '' }) : '',
      wanted.length > 0
        ? tag('system-out', {}, escapeXml(wanted.map(({ image }) => `asked for ${image}`).join('\n')))
        : '',
    ];
    return tag(
      'testcase',
      { classname: `${node}.${pod.owner || 'Pod'}`, name, time: pod.seconds ?? 0 },
      content.join(''),
    );
  });
  const counts = { tests: pods.length + 1, failures: countFailures(drill), errors: 0, time: seconds };
  return tag('testsuite', { name: node, timestamp: started, ...counts }, ['', own, ...cases, ''].join('\n'));
}
