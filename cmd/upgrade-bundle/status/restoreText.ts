import { PluginError } from '../../../lib/errors.ts';
import type { ClusterRestore, RestoreStep } from '../../../lib/update/clusterRestore.ts';
import { breakHanging, formatFields } from '../../cli/format.ts';
import { formatBytes } from '../../../lib/byteSize.ts';
import { Lines } from '../../../lib/lines.ts';

/** Formats the steps of a restore, or why there are none. `width` is that of the terminal. Commands are not wrapped. */
export function formatRestore({ record, backup, obstacles, cautions, steps }: ClusterRestore, width: number): Lines {
  const { node, path, version, time, size, digest, copy } = backup;
  const title = `${record}: backup of etcd and the static pods of OpenShift ${version}`;
  const facts = [
    ['Time', time],
    ['Node', node],
    ['Folder', path],
    ...(copy === undefined ? [] : [['Copy', copy]]),
    ['Snapshot', `${formatBytes(size)}, ${digest}`],
  ];
  const list = (texts: readonly string[]): string[] => texts.flatMap((text) => ['', ...breakHanging(text, width)]);
  const why =
    obstacles.length === 0
      ? []
      : list(['OpenShift does not support its restore now:', ...obstacles.map((each) => `- ${each}.`)]);
  const only = 'The steps, for a case of the OpenShift support:';
  const how = steps.flatMap((step, index) => formatStep(step, index + 1, width));
  return new Lines(
    title,
    formatFields(facts, width),
    ...why,
    ...(how.length > 0 ? list([...(why.length > 0 ? [only] : []), ...cautions]) : []),
    ...how,
  );
}

function formatStep({ purpose, nodes, commands }: RestoreStep, number: number, width: number): string[] {
  const place = nodes.length === 0 ? '' : ` On ${nodes.join(', ')}:`;
  return ['', ...breakHanging(`${number}. ${purpose}${place}`, width), ...commands.map((command) => `     ${command}`)];
}

/** Returns the error for a backup that cannot be restored. */
export function failureOfRestore({ record, obstacles }: ClusterRestore): PluginError {
  const message = `OpenShift does not support the restore of ${record} now: ${obstacles[0] ?? ''}`;
  const hint = 'See docs/how-to/restore-a-backup.md for other ways back.';
  return new PluginError('not-ready', message, { hint });
}
