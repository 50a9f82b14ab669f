import { expect } from 'chai';
import { Chalk } from 'chalk';
import { paint } from '../../../../cmd/cli/terminal.ts';
import { formatStatus, type StatusText } from '../../../../cmd/upgrade-bundle/status/statusText.ts';
import { Lines } from '../../../../lib/text.ts';
import type { NodeProgress, UpgradeBundle } from '../../../../lib/update/record/upgradeBundle.ts';

const stall = 'no progress since 2026-11-25T10:00:00Z (limit: 60 minutes); waiting: worker-10; check its agent';

function makeStuck(nameOf: (role: string) => string): UpgradeBundle {
  const nodes = Array.from({ length: 12 }, (_, index): NodeProgress => {
    const isFailed = index === 5 || index === 10;
    const phase = isFailed ? 'Failed' : index < 4 ? 'Loaded' : 'Loading';
    const message = isFailed ? { message: 'no space left on device: 4.2 GiB more are needed' } : {};
    const name = nameOf(`worker-${index}`);
    return { name, phase, imagesLoaded: index < 4 ? 190 : 20, imagesTotal: 190, bytes: 1e9, ...message };
  });
  const conditions = [
    { type: 'Verified', status: 'True', reason: 'Verified', message: 'the bundle is verified' },
    { type: 'Loaded', status: 'False', reason: 'NodesFailed', message: 'worker-10 does not have all images yet' },
    { type: 'Stalled', status: 'True', reason: 'NoProgress', message: stall },
  ];
  return {
    apiVersion: 'upgrade-bundle.openshift.io/v1alpha1',
    kind: 'UpgradeBundle',
    metadata: { name: 'b' },
    spec: { bundle: { digest: `sha256:${'a'.repeat(64)}` }, hold: false },
    status: { phase: 'Loading', version: '4.19.4', nodesReady: '4/12', progress: '41%', nodes, conditions },
  };
}

function format(nameOf: (role: string) => string, screen: { width: number; rows: number }): StatusText {
  const mirrors = [{ node: 'master-0', versions: ['4.19.3'], requests: 57, lacking: [] }];
  return formatStatus({ bundle: makeStuck(nameOf), elapsed: undefined, mirrors }, screen);
}

describe('the status of an update that is stuck', () => {
  it('begins with the failure and the next step, and lists failed nodes first', () => {
    const { text } = format((role) => role, { width: Infinity, rows: Infinity });
    const { lines } = new Lines(text);
    expect(lines.slice(0, 4)).to.deep.equal([
      'b: Loading, stalled, 2 nodes failed, 4 of 12 nodes ready, 41%',
      '  Problem    worker-5: no space left on device: 4.2 GiB more are needed; 1 more node',
      '  Next       fix what the failed nodes name; their agents try again',
      `  Stalled    ${stall}`,
    ]);
    expect(lines.filter((line) => line.startsWith('worker-')).map((line) => line.split(/\s+/)[1])).to.deep.equal([
      'Failed',
      'Failed',
      ...Array.from({ length: 6 }, () => 'Loading'),
      ...Array.from({ length: 4 }, () => 'Loaded'),
    ]);
    expect(lines.slice(-3)).to.deep.equal([
      '',
      'MIRROR    SERVES  IMAGES GIVEN  MESSAGE',
      'master-0  4.19.3            57',
    ]);
  });

  it('has the colors of severity', () => {
    const { text, accents } = format((role) => role, { width: 200, rows: Infinity });
    const painted = paint(new Lines(text).text, accents, new Chalk({ level: 1 }));
    const [red, green, yellow] = [31, 32, 33].map((color) => `\x1b[${color}m`);
    expect(painted).to.contain(`b: ${red}Loading, stalled\x1b[39m, 2 nodes failed`);
    expect(painted).to.contain(`${green}Verified   True\x1b[39m`);
    expect(painted).to.contain(`${yellow}Loaded     False\x1b[39m`);
    expect(painted).to.contain(`${red}Stalled    True\x1b[39m`);
    expect(painted).to.contain(`worker-5   ${red}Failed\x1b[39m`);
  });

  for (const [width, rows] of [
    [79, 24],
    [39, 30],
  ] as const)
    it(`fits a terminal of ${width + 1}x${rows}, with long names too, and counts the nodes that do not fit`, () => {
      for (const length of [8, 77]) {
        const { text } = format((role) => role.padEnd(length, '.example'), { width, rows });
        const { lines } = new Lines(text);
        expect(lines).to.have.length.below(rows);
        // A name of 77 characters has no place to be broken.
        const tooLong = lines.filter((line) => line.length > width && !/^worker-\S+$/.test(line));
        expect(tooLong).to.deep.equal([]);
        const [, more = '0'] = /^… and (\d+) more nodes?$/.exec(lines.at(-1) ?? '') ?? [];
        expect(lines.filter((line) => line.startsWith('worker-'))).to.have.length(12 - Number(more));
        expect(lines.join('\n')).to.match(/ Failed {3}[█░]/);
      }
    });
});
