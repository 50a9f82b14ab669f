import { expect } from 'chai';
import { stringify } from 'yaml';
import { listGates, readPayloadGates } from '../../lib/release/payload/adminGates.ts';
import { makeContext } from '../support/context.ts';

const metadata = { name: 'admin-gates', namespace: 'openshift-config-managed' };
const manifest = (data?: Record<string, string>): string =>
  stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata, ...(data && { data }) });
const files = (text: string): Map<string, Buffer> =>
  new Map([
    ['0000_00_cluster-version-operator_01_admingate_configmap.yaml', Buffer.from(text)],
    ['0000_00_a.yaml', Buffer.from('kind: ConfigMap\nmetadata:\n  name: admin-acks\ndata:\n  ack-4.19-a: x\n')],
  ]);

describe('the gates of a release', () => {
  it('are those for updates from its minor version, sorted, as one line each', () => {
    const data = {
      ...{
        'ack-4.19-b': 'Look at\n  “this”.\n',
        'ack-4.19-a': 'x\u001b[31m',
        'ack-4.18-c': 'old',
        'ack-4.20-d': 'new',
      },
      ...{ 'ack-4.19': 'no', 'ack-4.19--e': 'no', 'ack-4.190-f': 'no', other: 'no' },
    };
    const gates = [
      { name: 'ack-4.19-a', text: 'x [31m' },
      { name: 'ack-4.19-b', text: 'Look at “this”.' },
    ];
    expect(listGates(data, '4.19.12')).to.deep.equal(gates);
    expect(readPayloadGates(files(`---\n${manifest(data)}`), '4.19.12', makeContext())).to.deep.equal(gates);
    expect(readPayloadGates(files(manifest()), '4.19.12', makeContext())).to.deep.equal([]);
    expect(listGates(undefined, '4.19.12')).to.deep.equal([]);
  });

  it('are sorted by name', () => {
    const data = Object.fromEntries(['c', 'a', 'b'].map((name) => [`ack-4.19-${name}`, name]));
    expect(listGates(data, '4.19.12').map(({ text }) => text)).to.deep.equal(['a', 'b', 'c']);
  });

  it('are left out with a warning if their file cannot be read', () => {
    const context = makeContext();
    expect(readPayloadGates(files(`${manifest()}  x: [`), '4.19.12', context)).to.deep.equal([]);
    expect(context.lines.join('\n')).to.match(/_admingate_configmap\.yaml of the release payload is skipped: /);
  });
});
