import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { makeRegistryBundle } from '../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { startMirrorRegistry, type RunningRegistry } from '../fakes/mirror-registry/mirrorRegistryRun.ts';
import { fixtureAges } from '../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { hasPeer, requirePeer, run, runSuccessfully } from '../support/peers.ts';

describe('upgradeRegistry on an installation of every age', function () {
  let folder: string;
  let bundle: string;
  before(async function () {
    folder = await mkdtemp(join(tmpdir(), 'every-age-'));
    requirePeer(this, 'docker-registry', 'openssl', 'curl');
    bundle = (await makeRegistryBundle(folder)).path;
  });
  after(() => rm(folder, { recursive: true, force: true }));

  /** Returns the messages of systemd about the units of an installation, except those about all installers. */
  async function analyze({ fixture }: RunningRegistry): Promise<string[]> {
    const units = join(fixture.root, fixture.unitFolder);
    const names = (await readdir(units)).filter((name) => name.endsWith('.service'));
    const copies = await mkdtemp(join(folder, 'units-'));
    for (const name of names) {
      const text = await readFile(join(units, name), 'utf8');
      await writeFile(join(copies, name), text.replaceAll('/usr/bin/podman', '/bin/true'));
    }
    const paths = names.map((name) => join(copies, name));
    const { code, stderr } = await run('systemd-analyze', ['verify', '--man=no', ...paths]);
    const said = stderr.split('\n').filter((line) => line.includes('quay-') && !line.includes('KillMode=none'));
    return [...said, ...(code === 0 ? [] : [`it ended with ${code}`])];
  }

  const scopes = ['system', 'user'] as const;
  for (const [index, age] of fixtureAges.entries()) {
    // Scope and age are independent of each other. The newest has both scopes.
    for (const scope of index === fixtureAges.length - 1 ? scopes : scopes.slice(index % 2, (index % 2) + 1)) {
      const what = age.startsWith('2.')
        ? 'images and certificates'
        : 'certificates, of which PostgreSQL knows nothing,';
      it(`brings ${what} of ${age} in the ${scope} scope up to date, and touches no file the second time`, async () => {
        await using registry = await startMirrorRegistry({ age, scope });
        // The installer of 1.3.11 keeps the password of the database there.
        if (age === '1.3.11') registry.host.secrets.set('pgdb_pass', 'password');
        const args = age.startsWith('2.') ? [`--bundle=${bundle}`] : [];
        const { code, stderr } = await registry.call('upgrade', args);
        expect(code, stderr).to.equal(0);
        const url = `https://localhost:${registry.host.port}/v2/`;
        const [oldRoot, root] = [join(registry.fixture.root, 'old-root.pem'), registry.at('quay-rootCA/rootCA.pem')];
        for (const authority of [oldRoot, root]) {
          expect(await runSuccessfully('curl', ['-sS', '--cacert', authority, url])).to.equal('{}');
          const strict = ['-x509_strict', '-purpose', 'sslserver', '-verify_hostname', 'localhost'];
          await runSuccessfully('openssl', [
            'verify',
            ...strict,
            '-CAfile',
            authority,
            registry.at('quay-config/ssl.cert'),
          ]);
        }
        if (hasPeer('systemd-analyze')) expect(await analyze(registry)).to.deep.equal([]);

        const [before, calls] = [await registry.snapshot(true), registry.host.calls.length];
        const again = await registry.call('upgrade', args);
        expect([again.code, again.stdout.includes('there is nothing to do')], again.stderr).to.deep.equal([0, true]);
        expect(await registry.snapshot(true)).to.deep.equal(before);
        const asked = registry.host.calls.slice(calls);
        expect(
          asked.filter((line) => !/^podman (?:info|image (?:exists|inspect)|secret inspect)/.test(line)),
        ).to.deep.equal([]);
      });
    }
  }
});
