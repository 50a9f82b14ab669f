import { readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostCommands } from '../../../lib/node/machine/hostCommands.ts';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import { listMissingUnits, writeMissingUnits } from '../../../lib/registry-host/releases/missingUnits.ts';
import { openFixtures, type Fixture, type FixtureOptions } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { detectFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';

describe('the missing units of a registry', () => {
  const open = openFixtures();
  /** Installs a registry, and removes some of its units. */
  async function install(options: FixtureOptions, ...missing: string[]): Promise<Fixture> {
    const fixture = await open(options);
    for (const name of missing) await rm(join(fixture.root, fixture.unitFolder, `${name}.service`));
    return fixture;
  }

  it('are the units that others require, the pod first', async () => {
    const fixture = await install({ age: '2.0.7' }, 'quay-redis', 'quay-pod');
    const listed = listMissingUnits(await detectFixture(fixture), {});
    expect(listed.map(({ name, path }) => [name, path])).to.deep.equal([
      ['quay-pod', '/etc/systemd/system/quay-pod.service'],
      ['quay-redis', '/etc/systemd/system/quay-redis.service'],
    ]);
    expect(listMissingUnits(await detectFixture(await install({ age: '2.0.7' })), {})).to.deep.equal([]);
  });

  it('have the images of the target, and otherwise those of the installed release', async () => {
    const fixture = await install({ age: '2.0.7' }, 'quay-redis', 'quay-pod');
    const { redis, pause } = imagesOf('2.0.7');
    const detected = await detectFixture(fixture);
    const texts = listMissingUnits(detected, { redis: 'r/redis:2' }).map(({ text }) => text);
    expect(texts[0]).to.include(` --infra-image ${pause} `);
    expect(texts[1]).to.match(/ --replace r\/redis:2$/m);
    expect(listMissingUnits(detected, {})[1]?.text).to.include(` --replace ${redis}\n`);
  });

  it('have no text if their image or their data are unknown', async () => {
    const other = { age: '2.0.7', images: { quay: 'quay.local/quay:ours' } };
    const foreign = await detectFixture(await install(other, 'quay-redis'));
    expect(listMissingUnits(foreign, {}).map(({ text }) => text)).to.deep.equal([undefined]);
    expect(listMissingUnits(foreign, { redis: 'r/redis:2' })[0]?.text).to.include('r/redis:2');
    const old = await detectFixture(await install({ age: '1.3.10' }, 'quay-postgres'));
    const [postgres] = listMissingUnits(old, { quay: 'r/quay:1' });
    expect(postgres).to.include({ name: 'quay-postgres', text: undefined });
  });

  it('publish the port of clients, to the port on which Quay serves', async () => {
    const publish = async (configuration: string): Promise<string | undefined> => {
      const options = { age: '2.0.7', hostname: 'registry.example.com:9443', configuration };
      const [pod] = listMissingUnits(await detectFixture(await install(options, 'quay-pod')), {});
      return /--publish (\S+)/.exec(pod?.text ?? '')?.[1];
    };
    expect(await publish('')).to.equal('9443:8443');
    expect(await publish('EXTERNAL_TLS_TERMINATION: true\n')).to.equal('9443:8080');
  });

  it('are found again once they are written, and systemd enables them', async () => {
    const fixture = await install({ age: '2.0.7' }, 'quay-redis', 'quay-pod');
    const calls = join(fixture.root, 'calls');
    await fixture.write('/systemctl', `#!/bin/sh\necho "$*" >>${calls}\n`, 0o755);
    const systemctl = join(fixture.root, 'systemctl');
    const { signal } = new AbortController();
    const commands = new HostCommands({ podman: 'true', systemctl, environment: process.env, signal }, 'system');
    const detected = await detectFixture(fixture);
    const missing = listMissingUnits(detected, {});
    await writeMissingUnits({ files: new HostFiles(fixture.root), commands, detected }, missing);
    const found = await detectFixture(fixture);
    expect([...found.units.keys()]).to.deep.equal(['quay-app', 'quay-redis', 'quay-pod']);
    expect(found.installation.images).to.have.nested.property('pause.value', imagesOf('2.0.7').pause);
    expect((await stat(join(fixture.root, fixture.unitFolder, 'quay-pod.service'))).mode & 0o777).to.equal(0o644);
    expect(await readFile(calls, 'utf8')).to.equal(
      'daemon-reload\nenable quay-pod.service\nenable quay-redis.service\n',
    );
  });
});
