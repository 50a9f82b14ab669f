import { expect } from 'chai';
import { readNode } from '../../../lib/readiness/nodes/node.ts';
import { checkNodeDisks, readDisks } from '../../../lib/readiness/nodes/nodeDisks.ts';
import { node } from '../../fakes/cluster/site.ts';

const gibibyte = 1024 ** 3;
const worker = readNode(node('worker-0', 'worker'));
const needs = { blobs: 16 * gibibyte, backups: 2 * gibibyte, retains: false };
const fs = (free: number, size: number, inodes = size): object => ({
  availableBytes: free * gibibyte,
  capacityBytes: size * gibibyte,
  inodes,
});
const disksOf = (images: object, system: object) => readDisks({ node: { fs: system, runtime: { imageFs: images } } });
const check = (images: object, system: object): string[] =>
  checkNodeDisks(worker, disksOf(images, system), needs).map(({ severity, message }) => `${severity} ${message}`);

describe('the space on the file systems of a node', () => {
  it('is one sum if one file system has everything', () => {
    expect(check(fs(67, 120), fs(66.9, 120))).to.deep.equal([
      'blocker has 67 GiB only; 68 GiB of free space are needed (48 GiB for the images, 2.0 GiB for two ' +
        'backups of etcd, the rest stays free)',
    ]);
    expect(check(fs(69, 120), fs(69, 120))).to.deep.equal([]);
  });

  it('is judged by itself on a file system of the images, not by the size of the other one', () => {
    expect(check(fs(160, 200), fs(1700, 1830))).to.deep.equal([]);
    expect(check(fs(60, 1024), fs(60, 80))).to.deep.equal([
      'blocker has 60 GiB only at /var/lib/containers; 186 GiB of free space are needed (32 GiB for the ' +
        'images, the rest stays free)',
    ]);
  });

  it('charges the copy of the bundle and the backups to the system disk', () => {
    expect(check(fs(160, 200), fs(33, 60))).to.deep.equal([
      'blocker has 33 GiB only on its system disk; 34 GiB of free space are needed (16 GiB for the copy of the ' +
        'bundle, 2.0 GiB for two backups of etcd, the rest stays free)',
    ]);
    expect(check(fs(160, 200), fs(35, 60))).to.deep.equal([]);
  });

  it('is no question for a node that has all images, except for its backups', () => {
    const loaded = { ...needs, blobs: 0 };
    expect(checkNodeDisks(worker, disksOf(fs(3, 120), fs(3, 120)), loaded)).to.deep.equal([]);
    expect(checkNodeDisks(worker, disksOf(fs(1, 120), fs(1, 120)), loaded)).to.have.length(1);
  });

  it('takes file systems of the same size for two, if they have other numbers of inodes', () => {
    expect(disksOf(fs(10, 100, 5), fs(90, 100, 6))).to.have.property('system');
    expect(disksOf(fs(10, 100), fs(10, 100))).not.to.have.property('system');
  });

  it('takes the file system of the node for the images if no other is reported', () => {
    const system = fs(10, 100);
    expect(readDisks({ node: { fs: system, runtime: {} } })).to.deep.equal({
      images: { free: 10 * gibibyte, size: 100 * gibibyte },
    });
    for (const summary of [{}, { node: {} }, { node: { fs: { availableBytes: '1' } } }])
      expect(readDisks(summary)).to.equal(undefined);
  });

  it('reserves only the minimum of a file system whose size is unknown', () => {
    const disks = { images: { free: 67 * gibibyte } };
    expect(checkNodeDisks(worker, disks, needs)).to.deep.equal([]);
    expect(checkNodeDisks(worker, { images: { free: 65 * gibibyte } }, needs)).to.have.length(1);
  });

  it('shows two amounts with as many decimals as they need to differ', () => {
    expect(check(fs(67.96, 120), fs(67.96, 120))[0]).to.contain('has 67.96 GiB only; 68.00 GiB of free space');
  });
});
