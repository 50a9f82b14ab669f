import { expect } from 'chai';
import { stringify } from 'yaml';
import {
  describeGate,
  listRequiredGates,
  listRuntimeGates,
  type GateConditions,
  listGates,
  readPayloadGates,
} from '../../../lib/release/payload/adminGates.ts';
import { makeContext } from '../../support/context.ts';

/** A cluster to which no operator adds a gate. */
const plain: GateConditions = {
  platform: 'BareMetal',
  isAzureStack: false,
  hasMirrorSets: false,
  hasArmNodes: false,
  servesGateways: false,
  managedBootImages: [],
};
const unknown = undefined;

const sigstore = 'ack-4.20-sigstore-in-4.21';
const optOut = 'ack-4.21-boot-image-opt-out-in-4.22';
const earlierOptOut = 'ack-4.18-boot-image-opt-out-in-4.19';

describe('the gates that operators add at run time', () => {
  /** What each branch adds, by its source: `name` surely, `name?` perhaps. */
  const cases: readonly (readonly [version: string, site: Partial<GateConditions>, names: readonly string[]])[] = [
    // machine-config-operator release-4.20, container_runtime_config_controller.go
    ['4.20.12', { hasMirrorSets: true }, [sigstore]],
    ['4.20.12', { hasMirrorSets: unknown }, [`${sigstore}?`]],
    ['4.20.12', {}, [`${sigstore}?`]],
    // machine-config-operator release-4.21, pkg/operator/admin_ack.go
    ['4.21.3', { platform: 'VSphere' }, [optOut]],
    ['4.21.3', { platform: 'Azure' }, [optOut]],
    ['4.21.3', { platform: 'Azure', isAzureStack: true }, []],
    ['4.21.3', { platform: 'AWS' }, []],
    ['4.21.3', { platform: 'VSphere', managedBootImages: ['machinesets'] }, []],
    ['4.21.3', { platform: 'VSphere', managedBootImages: ['controlplanemachinesets'] }, [optOut]],
    ['4.21.3', { platform: 'VSphere', managedBootImages: unknown }, [`${optOut}?`]],
    ['4.21.3', { platform: unknown }, [`${optOut}?`]],
    ['4.21.3', { hasMirrorSets: true }, []],
    // machine-config-operator release-4.18, pkg/operator/admin_ack.go
    ['4.18.20', { platform: 'AWS' }, [earlierOptOut]],
    ['4.18.20', { platform: 'GCP', managedBootImages: ['controlplanemachinesets'] }, []],
    ['4.18.20', { platform: 'VSphere' }, []],
    ['4.18.20', { hasArmNodes: true }, ['ack-4.18-aarch64-bootloader-4.19']],
    // cluster-ingress-operator release-4.18, gatewayapi-upgradeable/controller.go
    ['4.18.20', { servesGateways: true }, ['ack-4.18-gateway-api-management-in-4.19']],
    ['4.15.9', {}, ['ack-4.15-route-config-not-supported-in-4.16?']],
    ['4.13.9', { platform: 'VSphere' }, ['ack-4.13-kube-127-cns-migration-in-4.14?']],
    ['4.13.9', {}, []],
    // The machine config operator of these has no gates.
    ...['4.16.9', '4.17.9', '4.19.9', '4.22.1', '4.23.0', '5.0.0'].map(
      (version) => [version, { hasMirrorSets: true, platform: 'VSphere', hasArmNodes: true }, []] as const,
    ),
  ];
  for (const [version, site, names] of cases)
    it(`of ${version} are ${names.join(', ') || 'none'} with ${JSON.stringify(site)}`, () => {
      const found = listRuntimeGates(version, { ...plain, ...site });
      expect(found.map(({ name, holds }) => `${name}${holds ? '' : '?'}`)).to.deep.equal(names);
    });

  const release = (version: string, ...names: string[]) => ({
    version,
    gates: names.map((name) => ({ name, text: 'x' })),
  });
  const list = (running: Parameters<typeof listRequiredGates>[0], site: Partial<GateConditions>, ...path: string[]) =>
    listRequiredGates(
      running,
      path.map((version) => release(version)),
      { ...plain, ...site },
    ).map((gate) => describeGate(gate).replace(/: “.*/, ''));

  it('are asked for before the first of several updates', () => {
    expect(list(release('4.19.12'), { hasMirrorSets: true, platform: 'VSphere' }, '4.20.9', '4.21.4', '4.22.1')).to.eql(
      [
        'the update to 4.21.4 will require, because the cluster has mirror sets, also those of mirrors on ' +
          'control plane ' +
          `nodes, the acknowledgement ${sigstore}`,
        'the update to 4.22.1 will require, because the platform is Azure or vSphere, and MachineConfiguration ' +
          '“cluster” ' +
          `does not manage machine sets, the acknowledgement ${optOut}`,
      ],
    );
  });

  it('are named once if the cluster has them already', () => {
    expect(list(release('4.20.9', sigstore), { hasMirrorSets: true }, '4.21.4')).to.eql([
      `the update to 4.21.4 requires the acknowledgement ${sigstore}`,
    ]);
  });

  it('may be missing in the running release, whose patch release may be older than they are', () => {
    expect(list(release('4.20.1'), { hasMirrorSets: true }, '4.21.4')).to.eql([
      'the update to 4.21.4 may require, if the cluster has mirror sets, also those of mirrors on control ' +
        'plane nodes, ' +
        `the acknowledgement ${sigstore}`,
    ]);
    expect(list(release('4.20.1'), { hasMirrorSets: false }, '4.21.4')).to.eql([]);
    expect(list(release('4.20.1'), { hasMirrorSets: true }, '4.20.12', '4.21.4')[0]).to.contain('will require');
  });
});

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
      'ack-4.19-b': 'Look at\n  “this”.\n',
      'ack-4.19-a': 'x\u001b[31m',
      'ack-4.18-c': 'old',
      'ack-4.20-d': 'new',
      'ack-4.19': 'no',
      'ack-4.19--e': 'no',
      'ack-4.190-f': 'no',
      other: 'no',
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
