import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import { detectInstallation } from '../../../lib/registry-host/detect/detect.ts';
import type { Inherited, Installation } from '../../../lib/registry-host/installation/installation.ts';
import { openFixtures, type Fixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { detectFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { fixtureAges, imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('detectInstallation', () => {
  const install = openFixtures();
  const detect = async (fixture: Fixture): Promise<Installation> => (await detectFixture(fixture)).installation;

  for (const age of fixtureAges) {
    for (const scope of ['system', 'user'] as const) {
      it(`recognizes ${age} in the ${scope} scope, and returns the place of each value`, async () => {
        const fixture = await install({ age, scope, hostname: 'registry.example.com' });
        const found = await detect(fixture);
        expect(found).to.include({ scope, version: age, database: age.startsWith('2') ? 'sqlite' : 'postgres' });
        expect(found.quayRoot.value).to.equal(fixture.quayRoot);
        expect(found.host.value).to.equal('registry.example.com');
        expect(found.port.value).to.equal(8443);
        expect(found.images.quay?.value).to.equal(imagesOf(age).quay);
        expect(found.additions).to.deep.equal([]);
        expect(found.remarks).to.deep.equal([]);
        const { quayRoot, host, storage, databaseStorage, images } = found;
        const inherited = [quayRoot, host, storage, databaseStorage, ...Object.values(images)];
        for (const { value, file, line } of inherited as Inherited<string>[]) {
          const lines = (await readFile(fixture.root + file, 'utf8')).split('\n');
          expect(lines[line - 1], `${file}:${line}`).to.include(value);
        }
      });
    }
  }

  it('refuses a configuration with a huge number of keys, and a host name that is more than one', async () => {
    const fixture = await install({ age: '2.0.7', hostname: 'registry.example.com' });
    const path = `${fixture.quayRoot}/quay-config/config.yaml`;
    const text = await readFile(fixture.root + path, 'utf8');
    await fixture.write(path, text + Array.from({ length: 300_000 }, (_, key) => `k${key}: 1\n`).join(''));
    const failure = await failureOf(detect(fixture));
    expect(failure).to.include({ code: 'invalid-file' });
    expect(failure.message).to.include('more than 60000 YAML tokens');
    await fixture.write(path, text.replace('registry.example.com', '"registry\\nRun: this\\n"'));
    expect((await failureOf(detect(fixture))).message).to.match(
      /config\.yaml:\d+: SERVER_HOSTNAME has line breaks or control characters$/,
    );
  });

  it('finds a folder with blanks, percent signs, dashes and unicode', async () => {
    const quayRoot = '/srv/-quay é 50% 登';
    const fixture = await install({ age: '2.0.7', quayRoot, hostname: 'registry.example.com' });
    const unit = `${fixture.unitFolder}/quay-app.service`;
    const text = await readFile(fixture.root + unit, 'utf8');
    const mount = /-v (.*:\/quay-registry\/conf\/stack:Z)/;
    await fixture.write(
      unit,
      text.replace(mount, (_, value: string) => `-v "${value.replaceAll('%', '%%')}"`),
    );
    expect((await detect(fixture)).quayRoot.value).to.equal(quayRoot);
  });

  it('inherits ports, storage, and settings of an administrator', async () => {
    const fixture = await install({
      age: '2.0.7',
      hostname: 'registry.example.com:9443',
      publish: '10.0.0.5:9443:8443/tcp',
      storage: '/srv/images',
      databaseStorage: '/srv/db',
      quayRoot: '/srv/quay',
      extra: [
        '-v /srv/extra:/extra:ro',
        '-e HTTPS_PROXY=http://user:secret@proxy',
        '--publish=8080:8080',
        '--memory=4g',
      ],
    });
    const found = await detect(fixture);
    expect([found.port.value, found.storage.value, found.databaseStorage?.value, found.quayRoot.value]).to.deep.equal([
      9443,
      '/srv/images',
      '/srv/db',
      '/srv/quay',
    ]);
    expect(found.additions.map(({ value }) => value)).to.deep.equal([
      '--volume /srv/extra:/extra:ro',
      '--env HTTPS_PROXY',
      '--publish 8080:8080',
      '--memory 4g',
    ]);
    expect(JSON.stringify(found)).not.to.include('secret');
  });

  it('follows drop-ins, which may replace the whole command', async () => {
    const fixture = await install({
      age: '2.0.7',
      dropIns: {
        'quay-app.service.d/50-own.conf':
          '[Service]\nExecStart=\nExecStart=/usr/bin/podman run -v ' +
          '/opt/quay/quay-config:/quay-registry/conf/stack:Z -v /opt/db:/sqlite:Z quay.local/quay:mine ' +
          'registry\n',
        'quay-app.service.d/readme.txt': 'not read',
      },
    });
    await fixture.write('/opt/quay/quay-config/config.yaml', 'SERVER_HOSTNAME: other:8443\n');
    const found = await detect(fixture);
    expect(found.quayRoot).to.deep.equal({
      value: '/opt/quay',
      file: `${fixture.unitFolder}/quay-app.service.d/50-own.conf`,
      line: 3,
    });
    expect(found.version).to.equal(undefined);
    expect(found.remarks.join()).to.include('quay.local/quay:mine');
  });

  for (const [hostname, host, port] of [
    ['[fd00::5]:9443', 'fd00::5', 9443],
    ['[fd00::5]', 'fd00::5', 8443],
    ['10.0.0.5:9443', '10.0.0.5', 9443],
  ] as const) {
    it(`takes ${hostname} apart`, async () => {
      const found = await detect(await install({ age: '2.0.7', hostname, publish: `[::]:${port}:8443` }));
      expect([found.host.value, found.port.value]).to.deep.equal([host, port]);
      expect(found.remarks).to.deep.equal([]);
    });
  }

  it('reads the folder from an option if the units name it by a variable', async () => {
    const fixture = await install({ age: '2.0.7' });
    const unit = `${fixture.unitFolder}/quay-app.service`;
    await fixture.write(
      unit,
      (await readFile(fixture.root + unit, 'utf8')).replace(`${fixture.quayRoot}/quay-config`, '${PLACE}/quay-config'),
    );
    const lost = await failureOf(detect(fixture), 'invalid-file');
    expect([lost.message, ...lost.settings].join())
      .to.include('${PLACE}')
      .and.to.include('quayRoot');
    await fixture.write('/srv/quay/quay-config/config.yaml', 'SERVER_HOSTNAME: other:9443\n');
    const options = { scope: 'auto', home: fixture.home, quayRoot: '/srv/quay' } as const;
    const { installation } = await detectInstallation(new HostFiles(fixture.root), options);
    expect(installation.quayRoot).to.deep.equal({ value: '/srv/quay', file: '--quay-root', line: 0 });
    expect(installation.host.value).to.equal('other');
  });

  it('sees that TLS ends elsewhere', async () => {
    const fixture = await install({ age: '2.0.7', configuration: 'EXTERNAL_TLS_TERMINATION: True\n' });
    expect(await detect(fixture)).to.include({ externalTls: true, servesTls: false });
    await fixture.write(`${fixture.quayRoot}/quay-config/ssl.key`, 'key');
    expect(await detect(fixture)).to.include({ externalTls: true, servesTls: true });
    expect(await detect(await install({ age: '2.0.7' }))).to.include({ externalTls: false, servesTls: true });
  });

  it('names the unit of Quay that runs nothing', async () => {
    const fixture = await install({ age: '2.0.7' });
    await fixture.write(`${fixture.unitFolder}/quay-app.service`, '[Service]\n');
    const options = { scope: 'auto', home: fixture.home, quayRoot: fixture.quayRoot } as const;
    const { message } = await failureOf(detectInstallation(new HostFiles(fixture.root), options), 'invalid-file');
    expect(message).to.include('quay-app.service mounts nothing');
  });

  it('reports a port that is not the one clients are told', async () => {
    const found = await detect(await install({ age: '2.0.7', publish: '9443:8443' }));
    expect(found.port.value).to.equal(9443);
    expect(found.remarks.join()).to.include('port 9443 is published');
  });

  it('refuses an installation without its configuration', async () => {
    const lost = await install({ age: '2.0.7', extra: ['-v /elsewhere/quay-config:/quay-registry/conf/stack:Z'] });
    await lost.write(`${lost.quayRoot}/quay-config/config.yaml`, 'SERVER_HOSTNAME: [\n');
    await failureOf(detect(lost), 'invalid-file');
  });
});
