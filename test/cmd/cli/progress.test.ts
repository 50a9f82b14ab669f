import { expect } from 'chai';
import { Progress } from '../../../cmd/cli/progress.ts';
import type { TransferEvent } from '../../../lib/context.ts';

const mebibyte = 1024 ** 2;
const digest = 'sha256:00';

/** Returns a transfer that begins at 0 ms, with events at that time. */
function begin(label: string, ...events: TransferEvent[]): Progress {
  const progress = new Progress(label, 0);
  for (const event of events) progress.add(event, 0);
  return progress;
}

function bytes(count: number): TransferEvent {
  return { kind: 'bytes', digest, bytes: count };
}

function plan(total: number, { images = 0, present = 0 } = {}): TransferEvent {
  return { kind: 'plan', images, blobs: 1, bytes: total, present };
}

describe('Progress', () => {
  it('has nothing to show before anything is known', () => {
    expect(begin('Downloading').started).to.equal(false);
  });

  it('shows percentage, bytes, rate, time left and images', () => {
    const events = [plan(100 * mebibyte, { images: 190 }), bytes(20 * mebibyte)];
    const progress = begin('Downloading', ...events, { kind: 'image', name: 'etcd' });
    expect(progress.line(2_000)).to.equal('Downloading  20%  20.0/100 MiB, 10.0 MiB/s, 8s left, 1/190 images');
  });

  it('counts the manifests that are read before there is a plan', () => {
    const progress = begin('Downloading', { kind: 'manifests', read: 38, images: 190 });
    expect(progress.line(2_000)).to.equal('Reading manifests  20%  38/190 images');
    progress.add(plan(4), 2_000);
    expect(progress.line(2_000)).to.equal('Downloading   0%  0/4 B');
  });

  it('counts present content as done, and not into the rate', () => {
    const progress = begin('Downloading', plan(100 * mebibyte, { present: 90 * mebibyte }), bytes(5 * mebibyte));
    expect(progress.line(1_000)).to.equal('Downloading  95%  95.0/100 MiB, 5.0 MiB/s, 1s left');
  });

  it('draws a bar of the width that was asked for', () => {
    expect(begin('Reading', plan(4, { present: 1 })).line(0, { bar: 8 })).to.equal('Reading ██░░░░░░  25%  1/4 B');
  });

  it('leaves out whole parts if the line is too short for all of them, and gives the rest to the bar', () => {
    const progress = begin('Downloading', plan(1200 * mebibyte, { images: 190 }), bytes(2 * mebibyte));
    for (const [width, text] of [
      [77, 'Downloading   0%  0.0/1.2 GiB, 205 KiB/s, 1h39m left, 0/190 images'],
      [63, 'Downloading   0%, 205 KiB/s, 1h39m left, 0/190 images'],
      [48, 'Downloading   0%, 1h39m left, 0/190 images'],
      [34, 'Downloading   0%, 0/190 images'],
      [24, 'Downloading   0%'],
      [9, 'Downloadi'],
    ] as const) {
      const line = progress.line(10_000, { bar: 20, width });
      expect(line.replace(/ ░+/, '')).to.equal(text);
      expect(line.length).to.be.at.most(width);
    }
    expect(progress.line(10_000, { bar: 20, width: 77 })).to.contain('░░░░░');
  });

  it('says how long nothing has arrived, instead of a rate', () => {
    const progress = begin('Downloading', plan(100, { images: 2 }), bytes(20));
    expect(progress.line(14_000)).to.contain('1 B/s');
    expect(progress.line(40_000)).to.equal('Downloading  20%  20/100 B, stalled for 40s, 0/2 images');
    progress.add(bytes(80), 41_000);
    expect(progress.line(90_000)).not.to.contain('stalled');
  });

  it('takes the rate over the last moments, and over the whole time at the end', () => {
    const progress = begin('Downloading', plan(560 * mebibyte), bytes(500 * mebibyte));
    for (let second = 1; second < 60; second += 1) {
      progress.add(bytes(mebibyte), second * 1000);
      progress.line(second * 1000);
    }
    expect(progress.line(59_000)).to.contain('1.0 MiB/s');
    progress.add(bytes(mebibyte), 60_000);
    expect(progress.line(70_000)).to.equal('Downloading 100%  560/560 MiB, 9.3 MiB/s');
  });

  it('never exceeds its plan when a blob is fetched again', () => {
    const progress = begin('Downloading', plan(10), bytes(15));
    expect(progress.fraction).to.equal(1);
    expect(progress.line(1_000)).to.equal('Downloading 100%  10/10 B, 15 B/s');
  });

  it('shows bytes alone without a plan', () => {
    expect(begin('Copying', bytes(2048)).line(1_000)).to.equal('Copying 2.0 KiB, 2.0 KiB/s');
  });

  it('is done from the start when there is nothing to do', () => {
    expect(begin('Copying', plan(0)).fraction).to.equal(1);
  });
});
