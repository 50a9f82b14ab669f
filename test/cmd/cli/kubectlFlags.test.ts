import { expect } from 'chai';
import { readKubectlFlags } from '../../../cmd/cli/kubectlFlags.ts';
import { globalFlags } from '../../../cmd/upgrade-bundle/shell-hook/shellHook.ts';

describe('readKubectlFlags', () => {
  const read: readonly (readonly [given: string, read: string])[] = [
    ['create 4.20.3 -v --output=x', 'create 4.20.3 -v --output=x'],
    ['-v=6 create', '--verbose create'],
    ['create -v 8 --to=x', 'create --verbose --to=x'],
    ['--loglevel=4 create --v=2 -v 0', 'create'],
    ['create --loglevel 6', 'create --verbose'],
    ['-v=x create', '-v=x create'],
    ['--cache-dir=/tmp/x create --profile none --match-server-version --warnings-as-errors=true', 'create'],
    ['status -ojson -nweb -f=x -o yaml', 'status -o=json -n=web -f=x -o yaml'],
    ['create -v6 -vq', 'create --verbose -vq'],
    ['create -- -v=6 --profile', 'create -- -v=6 --profile'],
  ];
  for (const [given, expected] of read) {
    it(given, () => {
      expect(readKubectlFlags(given.split(' ')).join(' ')).to.equal(expected);
    });
  }

  it('knows the flags that come before a verb, with and without a value', () => {
    const { valued, plain } = globalFlags();
    expect(valued).to.include.members(['--context', '-n', '-s', '-v', '--v', '--as-user-extra', '--cache-dir']);
    expect(plain).to.include.members(['--insecure-skip-tls-verify', '--match-server-version']);
  });
});
