import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { requirePeer, run } from '../../support/peers.ts';

const program = fileURLToPath(new URL('../../support/program/liveTransfer.ts', import.meta.url));

/** Shows a transfer on a real terminal with each of the sizes in turn. Returns what it draws. */
async function draw(...sizes: readonly string[]): Promise<string> {
  const command = [process.execPath, program, ...sizes].join(' ');
  const { code, stdout } = await run('script', ['-qec', command, '/dev/null']);
  expect(code).to.equal(0);
  expect(stdout).to.match(/ended\r\n/);
  return stdout;
}

const hideCursor = '\x1b[?25l';

describe('Terminal of an unusual size', function () {
  requirePeer(this, 'script', 'stty');

  for (const size of ['0x0', '1x1', '0x24', '80x0']) {
    it(`prints plain lines on one of ${size}`, async () => {
      const drawn = await draw(size);
      expect(drawn).to.contain('Downloading').and.not.to.contain(hideCursor);
      expect(drawn.split('\n').length).to.be.below(10);
    });
  }

  it('draws a live line on one of 20x5', async () => {
    expect(await draw('20x5')).to.contain(hideCursor);
  });

  it('continues with plain lines if the size is gone', async () => {
    const drawn = await draw('80x24', '0x0');
    expect(drawn).to.contain(hideCursor);
    expect(drawn.split('\n').length).to.be.below(10);
  });

  it('keeps drawing if the size changes', async () => {
    expect(await draw('80x24', '30x5')).to.contain(hideCursor);
  });
});
