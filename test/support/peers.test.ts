import { expect } from 'chai';
import { hasPeer, run, runSuccessfully } from './peers.ts';

describe('run', () => {
  it('gives the exit code and both outputs', async () => {
    const result = await run('sh', ['-c', 'cat; echo bad >&2; exit 3'], { input: 'good' });
    expect(result).to.deep.equal({ code: 3, stdout: 'good', stderr: 'bad\n' });
  });

  it('gives -1 for a command that cannot start', async () => {
    const result = await run('no-such-command-here', []);
    expect(result.code).to.equal(-1);
    expect(result.stderr).to.include('ENOENT');
  });
});

describe('runSuccessfully', () => {
  it('throws the output of a failed command', async () => {
    const failed = await runSuccessfully('sh', ['-c', 'echo why >&2; exit 1']).catch((error: unknown) => String(error));
    expect(failed).to.include('ended with 1: why');
  });
});

describe('hasPeer', () => {
  it('finds a program on the path', () => {
    expect(hasPeer('tar')).to.equal(true);
  });
});
