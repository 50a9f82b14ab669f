import { expect } from 'chai';
import { findProgram, runProgram, type Host } from '../../lib/machine/host.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { run } from '../support/peers.ts';

const host: Host = { root: '/', environment: { PATH: process.env['PATH'] } };

describe('runProgram', () => {
  it('gives what a program prints, and its exit code, be it good or bad', async () => {
    const result = await runProgram(host, 'sh', ['-c', 'echo out; echo err >&2; exit 3'], makeContext());
    expect(result).to.deep.equal({ code: 3, stdout: 'out\n', stderr: 'err\n' });
  });

  it('gives it the environment of the host and what is added', async () => {
    const options = { environment: { MORE: 'more' } };
    const { stdout } = await runProgram(
      { root: '/', environment: { ...host.environment, OWN: 'own' } },
      'sh',
      ['-c', 'echo $OWN $MORE $HOME'],
      makeContext(),
      options,
    );
    expect(stdout).to.equal('own more\n');
  });

  it('runs it after everybody else when it is to be gentle', async () => {
    const { stdout } = await runProgram(host, 'nice', [], makeContext(), { gentle: true });
    expect(stdout).to.equal('19\n');
  });

  it('ends it when the context is interrupted', async () => {
    const context = makeContext();
    const running = runProgram(host, 'sh', ['-c', 'sleep 5; true'], context);
    setTimeout(() => {
      context.interrupt();
    }, 50);
    await failureOf(running, 'interrupted');
  });

  it('runs it inside of another root', async function () {
    const outside = await run('chroot', ['/', 'true']);
    if (outside.code !== 0) this.skip();
    // The same file system by another path.
    const { stdout } = await runProgram(
      { ...host, root: '/proc/self/root' },
      'readlink',
      ['/proc/self/root'],
      makeContext(),
    );
    expect(stdout).to.equal('/\n');
  });

  it('says that a program is not there, and where', async () => {
    const error = await failureOf(runProgram(host, 'no-such-program', [], makeContext()), 'not-found');
    expect(error.message).to.equal('this machine has no no-such-program');
    expect(await findProgram({ root: '/nowhere', environment: {} }, 'sh')).to.equal(undefined);
  });
});
