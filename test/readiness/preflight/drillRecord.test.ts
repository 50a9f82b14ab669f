import { expect } from 'chai';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import {
  checkDrills,
  lastDrillAnnotation,
  readRunningDrill,
  runningDrillAnnotation,
} from '../../../lib/readiness/preflight/drillRecord.ts';

const node = (name: string, annotations: Record<string, unknown> = {}): StoredObject => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: {
    name,
    annotations: Object.fromEntries(Object.entries(annotations).map(([key, value]) => [key, JSON.stringify(value)])),
  },
});
const drilled = (name: string, result: string, day: string, more: object = {}): StoredObject =>
  node(name, { [lastDrillAnnotation]: { result, ended: `${day}T10:00:00Z`, started: `${day}T09:50:00Z`, ...more } });

describe('checkDrills', () => {
  const describeAll = (...nodes: StoredObject[]): string[] =>
    checkDrills(nodes).map(({ severity, subject, message }) => `${severity} ${subject.name} ${message}`);

  it('reports when the last drills were and how they ended', () => {
    expect(
      describeAll(
        drilled('a', 'passed', '2026-03-01'),
        drilled('b', 'passed', '2026-05-02', { reboot: true }),
        drilled('c', 'failed', '2026-05-03', { message: '1 pod does not run again after 900 s' }),
        drilled('d', 'interrupted', '2026-05-04'),
        node('e'),
      ),
    ).to.deep.equal([
      'warning c the last drill failed on 2026-05-03: 1 pod does not run again after 900 s',
      'warning d the last drill was interrupted on 2026-05-04',
      'info  drills passed on 2 of 5 nodes (a, b), the last on 2026-05-02 with a reboot',
    ]);
  });

  it('ignores annotations that are malformed, which anyone who may edit nodes can write', () => {
    const odd = node('a');
    expect(
      describeAll({ ...odd, metadata: { ...odd.metadata, annotations: { [lastDrillAnnotation]: '{' } } }),
    ).to.deep.equal([]);
    expect(describeAll(drilled('a', 'perfect', '2026-03-01'))).to.deep.equal([]);
    expect(readRunningDrill(node('a', { [runningDrillAnnotation]: 5 }))).to.equal(undefined);
  });
});
