import { expect } from 'chai';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import {
  findUnits,
  readKept,
  removeKept,
  writeKept,
  type DetectOptions,
} from '../../../lib/registry-host/detect/scopes.ts';
import { openFixtures, type Fixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { failureOf } from '../../support/program/failure.ts';

const kept = {
  scope: 'user',
  unitFolder: '/root/.config/systemd/user',
  quayRoot: '/root/quay-install',
  volumes: ['quay-storage'],
  keptImages: [],
  folders: ['/root/quay-install'],
} as const;

describe('findUnits', () => {
  const install = openFixtures();
  const find = ({ root, home }: Fixture, scope: DetectOptions['scope'] = 'auto') =>
    findUnits(new HostFiles(root), { scope, home });

  it('finds the units of a registry with their drop-ins, in the order of names', async () => {
    const dropIn = (name: string): string => `quay-app.service.d/${name}`;
    const dropIns = { [dropIn('90-b.conf')]: '', [dropIn('10-a.conf')]: '', [dropIn('readme.txt')]: '' };
    const fixture = await install({ age: '1.3.11', dropIns });
    const { scope, folder, units } = await find(fixture);
    expect([scope, folder]).to.deep.equal(['system', '/etc/systemd/system']);
    expect([...units.keys()]).to.deep.equal(['quay-app', 'quay-redis', 'quay-pod', 'quay-postgres']);
    const names = units.get('quay-app')?.files.map(({ path }) => path.slice(folder.length + 1));
    expect(names).to.deep.equal(['quay-app.service', dropIn('10-a.conf'), dropIn('90-b.conf')]);
  });

  it('refuses two installations, unless a scope is chosen', async () => {
    const fixture = await install({ age: '2.0.7' });
    await fixture.write('/root/.config/systemd/user/quay-app.service', '[Service]\n');
    const { message, settings } = await failureOf(find(fixture), 'conflict');
    expect(message).to.equal(
      'there are two mirror registries: in /etc/systemd/system and in /root/.config/systemd/user',
    );
    expect(settings).to.deep.equal(['scope']);
    expect([(await find(fixture, 'system')).scope, (await find(fixture, 'user')).scope]).to.deep.equal([
      'system',
      'user',
    ]);
  });

  it('refuses a version 3 in each folder in which podman looks, also with the old units', async () => {
    for (const path of [
      '/etc/containers/systemd/quay.container',
      '/etc/containers/systemd/quay/quay.container',
      '/usr/share/containers/systemd/users/quay.container',
      '/root/.config/containers/systemd/quay.container',
    ]) {
      const fixture = await install({ age: '2.0.7' });
      await fixture.write(path, '[Container]\n');
      expect((await failureOf(find(fixture), 'unsupported')).message).to.equal(
        `the mirror registry of ${path} has version 3, which uses a Quadlet unit`,
      );
    }
  });

  it('looks for a version 3 in the chosen scope only', async () => {
    const fixture = await install({ age: '2.0.7' });
    await fixture.write('/etc/containers/systemd/users/quay.container', '[Container]\n');
    expect((await find(fixture, 'system')).scope).to.equal('system');
    await failureOf(find(fixture), 'unsupported');
  });

  it('names the folders in which there is none', async () => {
    const fixture = await install({ age: '2.0.7' });
    const { message, settings } = await failureOf(find(fixture, 'user'), 'not-found');
    expect(message).to.equal(
      `there is no mirror registry on this host: no quay-app.service in ${fixture.root}/root/.config/systemd/user`,
    );
    expect(settings).to.deep.equal(['userHome', 'root']);
  });

  it('names the data that an uninstalled registry kept', async () => {
    const fixture = await install({ age: '2.0.7' });
    const files = new HostFiles(fixture.root);
    await writeKept(files, kept, fixture);
    const { message, settings } = await failureOf(find(fixture, 'user'), 'not-found');
    expect(message).to.equal(
      'the mirror registry of this host was uninstalled, and its data was kept: /root/quay-install, the volume ' +
        'quay-storage',
    );
    expect(settings).to.deep.equal(['removeData']);
    expect((await find(fixture)).scope).to.equal('system');
  });
});

describe('the record of kept data', () => {
  const install = openFixtures();
  const open = async (): Promise<{ fixture: Fixture; files: HostFiles }> => {
    const fixture = await install({ age: '2.0.7' });
    return { fixture, files: new HostFiles(fixture.root) };
  };
  const path = '/root/.local/share/oc-mirror-registry/uninstalled.json';

  it('is of one scope, and is removed with the data', async () => {
    const { fixture, files } = await open();
    await writeKept(files, kept, fixture);
    const { home } = fixture;
    for (const scope of ['auto', 'user'] as const)
      expect(await readKept(files, { scope, home })).to.deep.equal({ ...kept, path });
    expect(await readKept(files, { scope: 'system', home })).to.equal(undefined);
    await removeKept(files, 'user', fixture);
    expect(await readKept(files, { scope: 'auto', home })).to.equal(undefined);
  });

  it('is ignored in another form, because podman would take some names as options', async () => {
    const { fixture, files } = await open();
    for (const change of [{ volumes: ['--all'] }, { folders: ['etc'] }, { scope: 'other' }, { quayRoot: undefined }]) {
      await fixture.write(path, JSON.stringify({ ...kept, ...change }));
      expect(await readKept(files, { scope: 'user', home: fixture.home }), JSON.stringify(change)).to.equal(undefined);
    }
  });

  it('is refused if it is damaged', async () => {
    const { fixture, files } = await open();
    await fixture.write(path, '{');
    const { message, hint } = await failureOf(readKept(files, { scope: 'auto', home: fixture.home }), 'invalid-file');
    expect(message).to.match(/^\/root\/.*uninstalled\.json, the record of kept data, is damaged: malformed at /);
    expect(hint).to.equal('Move it away, and remove the kept data by hand.');
  });
});
