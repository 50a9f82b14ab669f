import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { formatCheckTimer } from '../../../lib/registry-host/change/checkTimer.ts';
import { parseUnitFile } from '../../../lib/registry-host/detect/units.ts';
import { makeFixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { installCertificates } from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { mirrorRegistryExecutable } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer, run } from '../../support/peers.ts';

describe('formatCheckTimer', () => {
  const parts = (text: string): string[] => text.split(/^# (?:~|\/etc\/systemd\/system)\/.*$/m);

  it('makes a service and a timer that systemd reads without a word', async function () {
    requirePeer(this, 'systemd-analyze');
    const folder = await mkdtemp(join(tmpdir(), 'timer-'));
    try {
      const command = ['/bin/true', '--bundle=registry.example.com:8443/a/b', '--root=/a b/$x/100%/"c"'];
      const [, service = '', timer = ''] = parts(formatCheckTimer({ command, isUser: false, changesExitCode: 10 }));
      const paths = ['service', 'timer'].map((kind) => join(folder, `oc-mirror-registry-check.${kind}`));
      await writeFile(paths[0] ?? '', service);
      await writeFile(paths[1] ?? '', timer);
      const { code, stderr } = await run('systemd-analyze', ['verify', '--man=no', ...paths]);
      expect([code, stderr.split('\n').filter((line) => line.includes('oc-mirror-registry'))]).to.deep.equal([0, []]);
      expect(service).to.include(' "--bundle=registry.example.com:8443/a/b" "--root=/a b/$$x/100%%/\\"c\\""\n');
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('names the folder and the command of the systemd instance that runs the registry', () => {
    for (const [isUser, folder, start] of [
      [false, '/etc/systemd/system/', 'systemctl enable'],
      [true, '~/.config/systemd/user/', 'systemctl --user enable'],
    ] as const) {
      const text = formatCheckTimer({ command: ['/bin/true'], isUser, changesExitCode: 10 });
      expect(text.match(/^# \S*\/(?=oc-mirror)/gm)).to.deep.equal([`# ${folder}`, `# ${folder}`]);
      expect(text).to.include(start);
    }
  });

  it('is printed so that it runs unchanged, for this installation, and distinguishes changes from a wrong command line', async function () {
    requirePeer(this, 'openssl');
    await using fixture = await makeFixture({ age: '2.0.7', scope: 'user' });
    await installCertificates(fixture, { days: 60 });
    const where = [`--root=${fixture.root}`, `--user-home=${fixture.home}`];
    const plan = (...args: string[]) => run(process.execPath, [mirrorRegistryExecutable, 'plan', ...where, ...args]);
    const runPrinted = async (...args: string[]): Promise<number> => {
      const { stdout, stderr } = await plan('--timer', ...args);
      const [, service = ''] = parts(stdout);
      const start = parseUnitFile('service', service).settings.find(({ key }) => key === 'ExecStart');
      const [program = '', ...words] = (start?.words ?? []).map(({ text }) => text);
      expect(words, stderr).to.include('--scope=user').and.to.include(where[0]);
      // A service has neither the folder nor the environment of a shell.
      return (await run(program, words, { cwd: '/', env: {} })).code;
    };
    expect(await runPrinted()).to.equal(10);
    // The fixture’s certificate also has a flaw, which always renews it. Make sure that nothing
    // is left to do.
    await writeFile(
      `${fixture.root}${fixture.quayRoot}/quay-config/config.yaml`,
      'SERVER_HOSTNAME: registry.example.com:8443\nEXTERNAL_TLS_TERMINATION: true\n',
    );
    await rm(`${fixture.root}${fixture.quayRoot}/quay-config/ssl.key`);
    expect(await runPrinted('--renew-before=30')).to.equal(0);
    expect((await plan('--detailed-exitcode', '--nonsense')).code).to.equal(2);
    await rm(`${fixture.root}${fixture.unitFolder}`, { recursive: true });
    expect((await plan('--timer')).stderr).to.include('there is no mirror registry on this host');
  });
});
