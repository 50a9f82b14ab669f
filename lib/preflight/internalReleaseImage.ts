import { fieldsAt, listOf, textOf, textsOf } from '../fields.ts';
import type { StoredObject } from '../kubernetes/fields.ts';
import { subjectOf, type Finding } from '../kubernetes/finding.ts';
import { isInternalRegistry, type ClusterSurvey } from './survey.ts';

const advice = {
  serves: 'Nothing to do. An update from a bundle neither uses nor changes it.',
  degraded: 'Nodes that join or are reset need it. See the condition InternalReleaseImageDegraded of the node.',
} as const;

/** Finds what InternalReleaseImage serves, by MachineConfigNodes or mirror sets, and the nodes where it is degraded. */
export function checkInternalReleaseImage({
  poolNodes,
  digestMirrors,
}: Pick<ClusterSurvey, 'poolNodes' | 'digestMirrors'>): Finding[] {
  const served = poolNodes.flatMap(({ status }) => listOf(fieldsAt(status, 'internalReleaseImage')['releases']));
  const names = [...new Set(served.flatMap(({ name }) => textOf(name) ?? []))].sort();
  if (names.length === 0 && !digestMirrors.some(hasInternalRegistry)) return [];
  const what = names.length === 0 ? 'releases of the installer' : names.join(', ');
  const message = `the control plane nodes serve ${what} on port 22625`;
  const subject = { kind: 'InternalReleaseImage', name: 'cluster' };
  return [
    { check: 'images', severity: 'info', subject, message, advice: advice.serves },
    ...poolNodes.flatMap((node): Finding[] => {
      const degraded = listOf(fieldsAt(node, 'status')['conditions']).find(
        ({ type, status }) => type === 'InternalReleaseImageDegraded' && status === 'True',
      );
      if (!degraded) return [];
      const words = `its registry of InternalReleaseImage is degraded: ${textOf(degraded['message']) ?? 'no reason'}`;
      return [
        { check: 'images', severity: 'warning', subject: subjectOf(node), message: words, advice: advice.degraded },
      ];
    }),
  ];
}

function hasInternalRegistry({ spec }: StoredObject): boolean {
  return listOf(fieldsAt(spec)['imageDigestMirrors']).some(({ mirrors }) => textsOf(mirrors).some(isInternalRegistry));
}
