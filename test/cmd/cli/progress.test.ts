import { expect } from 'chai';
import { Progress } from '../../../cmd/cli/progress.ts';

const mebibyte = 1024 ** 2;
const digest = 'sha256:00';

describe('Progress', () => {
  it('has nothing to show before anything is known', () => {
    expect(new Progress('Downloading', 0).started).to.equal(false);
  });

  it('tells percentage, bytes, rate, time left and images', () => {
    const progress = new Progress('Downloading', 0);
    progress.add({ kind: 'plan', images: 190, blobs: 400, bytes: 100 * mebibyte, present: 0 });
    progress.add({ kind: 'bytes', digest, bytes: 20 * mebibyte });
    progress.add({ kind: 'image', name: 'etcd' });
    expect(progress.line(2_000)).to.equal(
      'Downloading  20%  20.0 MiB of 100 MiB, 10.0 MiB/s, 8s left, 1 of 190 images',
    );
  });

  it('counts what was there before as done, and not into the rate', () => {
    const progress = new Progress('Downloading', 0);
    progress.add({ kind: 'plan', images: 0, blobs: 2, bytes: 100 * mebibyte, present: 90 * mebibyte });
    progress.add({ kind: 'bytes', digest, bytes: 5 * mebibyte });
    expect(progress.line(1_000)).to.equal('Downloading  95%  95.0 MiB of 100 MiB, 5.0 MiB/s, 1s left');
  });

  it('draws a bar of the width that was asked for', () => {
    const progress = new Progress('Reading', 0);
    progress.add({ kind: 'plan', images: 0, blobs: 1, bytes: 4, present: 1 });
    expect(progress.line(0, { bar: 8 })).to.equal('Reading ██░░░░░░  25%  1 B of 4 B');
  });

  it('leaves out whole parts where the line is too short for all of them', () => {
    const progress = new Progress('Downloading', 0);
    progress.add({ kind: 'plan', images: 190, blobs: 400, bytes: 100 * mebibyte, present: 0 });
    progress.add({ kind: 'bytes', digest, bytes: 20 * mebibyte });
    const whole = 'Downloading  20%  20.0 MiB of 100 MiB, 10.0 MiB/s, 8s left, 0 of 190 images';
    for (const [width, text] of [
      [77, whole],
      [57, 'Downloading  20%  20.0 MiB of 100 MiB, 10.0 MiB/s'],
      [58, 'Downloading  20%  20.0 MiB of 100 MiB, 10.0 MiB/s, 8s left'],
      [48, 'Downloading  20%  20.0 MiB of 100 MiB'],
      [20, 'Downloading  20%'],
    ] as const) {
      expect(progress.line(2_000, { width })).to.equal(text);
    }
  });

  it('takes the rate over the last moments only', () => {
    const progress = new Progress('Downloading', 0);
    progress.add({ kind: 'plan', images: 0, blobs: 1, bytes: 1000 * mebibyte, present: 0 });
    progress.add({ kind: 'bytes', digest, bytes: 500 * mebibyte });
    for (let second = 1; second <= 60; second += 1) {
      progress.add({ kind: 'bytes', digest, bytes: mebibyte });
      progress.line(second * 1000);
    }
    expect(progress.line(60_000)).to.contain('1.0 MiB/s');
  });

  it('never exceeds its plan when a blob is fetched again', () => {
    const progress = new Progress('Downloading', 0);
    progress.add({ kind: 'plan', images: 0, blobs: 1, bytes: 10, present: 0 });
    progress.add({ kind: 'bytes', digest, bytes: 15 });
    expect(progress.fraction).to.equal(1);
    expect(progress.line(1_000)).to.equal('Downloading 100%  10 B of 10 B, 15 B/s');
  });

  it('tells bytes alone without a plan', () => {
    const progress = new Progress('Copying', 0);
    progress.add({ kind: 'bytes', digest, bytes: 2048 });
    expect(progress.line(1_000)).to.equal('Copying 2.0 KiB, 2.0 KiB/s');
  });

  it('is done from the start when there is nothing to do', () => {
    const progress = new Progress('Copying', 0);
    progress.add({ kind: 'plan', images: 0, blobs: 0, bytes: 0, present: 0 });
    expect(progress.fraction).to.equal(1);
  });
});
