import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { formatUnifiedDiff } from '../../../cmd/cli/unifiedDiff.ts';
import { isUpToDate, requireFeasible } from '../../../lib/registry-host/change/plan.ts';
import { openFixtures, type Fixture, type FixtureOptions } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { installCertificates, installOwnCertificate } from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { planFixture, writeUnits } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { fixtureAges, imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { requirePeer, run, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

const { postgres: _, ...latest } = imagesOf('2.0.11');

describe('planUpgrade', () => {
  const open = openFixtures();
  const install = (options: FixtureOptions): Promise<Fixture> =>
    open({ configuration: 'EXTERNAL_TLS_TERMINATION: true\n', ...options });

  for (const age of fixtureAges.filter((name) => name.startsWith('2.'))) {
    for (const scope of ['system', 'user'] as const) {
      it(`brings ${age} in the ${scope} scope up to date, and is empty then`, async () => {
        const extra = ['-e HTTPS_PROXY=http://user:secret@proxy', '"--label=a b"'];
        const fixture = await install({ age, scope, publish: '10.0.0.5:9443:8443', extra });
        const plan = await planFixture(fixture, latest);
        expect(isUpToDate(plan)).to.equal(age === '2.0.11');
        expect(plan.blockers).to.deep.equal([]);
        expect([plan.from, plan.to]).to.deep.equal([age, '2.0.11']);
        await writeUnits(fixture, plan);
        const units = await Promise.all(
          ['quay-app', 'quay-redis', 'quay-pod'].map((name) =>
            readFile(`${fixture.root}${fixture.unitFolder}/${name}.service`, 'utf8'),
          ),
        );
        const text = units.join('\n');
        for (const image of Object.values(latest)) expect(text).to.include(image);
        expect(text).to.include(extra.join(' \\\n    ')).and.to.include('--publish 10.0.0.5:9443:8443');
        expect(text.match(/PYTHONUSERBASE_SITE_PACKAGE=/g)).to.have.length(1);
        expect(text).to.match(/:\/sqlite:Z,U /);
        const again = await planFixture(fixture, latest);
        expect(isUpToDate(again)).to.equal(true);
        expect(again).to.deep.include({ level: 'none', restart: [] });
      });
    }
  }

  it('changes the words that have to change, and no other byte', async () => {
    const fixture = await install({ age: '2.0.7' });
    const plan = await planFixture(fixture, { quay: latest.quay });
    expect(plan).to.include({ level: 'patch' });
    expect(plan.restart).to.deep.equal(['quay-app']);
    const [unit] = plan.units;
    expect(plan.units).to.have.length(1);
    expect(unit?.after).to.equal(
      unit?.before
        .replace(':/sqlite:Z', ':/sqlite:Z,U')
        .replace(
          imagesOf('2.0.7').quay,
          `-e PYTHONUSERBASE_SITE_PACKAGE=/opt/app-root/lib/python3.12/site-packages ${latest.quay}`,
        ),
    );
  });

  it('keeps the quotes and the percent signs of a mount', async () => {
    const fixture = await install({ age: '2.0.7', databaseStorage: '"/srv/my 100%% data"' });
    const unit = join(fixture.root, fixture.unitFolder, 'quay-app.service');
    await writeFile(unit, (await readFile(unit, 'utf8')).replace('data":/sqlite:Z', 'data:/sqlite:Z"'));
    const plan = await planFixture(fixture, { quay: latest.quay });
    expect(plan.units[0]?.after).to.include('-v "/srv/my 100%% data:/sqlite:Z,U" ');
  });

  it('restarts the units that depend on changed files', async () => {
    const fixture = await install({ age: '2.0.10' });
    expect((await planFixture(fixture, { redis: 'r/redis:2' })).restart).to.deep.equal(['quay-redis', 'quay-app']);
    const pause = await planFixture(fixture, { pause: 'r/pause:9' });
    expect(pause.restart).to.deep.equal(['quay-pod', 'quay-redis', 'quay-app']);
  });

  it('edits the drop-in with the command, and migrates again with a left-over command', async () => {
    const command =
      '/usr/bin/podman run -v /opt/quay/quay-config:/quay-registry/conf/stack:Z -v /opt/db:/sqlite ' +
      'quay.local/quay:v3.12.3 registry-nomigrate';
    const fixture = await install({
      age: '2.0.7',
      dropIns: { 'quay-app.service.d/50-own.conf': `# ours\n[Service]\nExecStart=\nExecStart=${command}\n` },
    });
    await fixture.write(
      '/opt/quay/quay-config/config.yaml',
      'SERVER_HOSTNAME: other:8443\nEXTERNAL_TLS_TERMINATION: true\n',
    );
    const plan = await planFixture(fixture, { quay: latest.quay });
    expect(plan.units.map(({ path }) => basename(path))).to.deep.equal(['50-own.conf']);
    expect(plan.units[0]?.after).to.match(/^# ours\n.* -v \/opt\/db:\/sqlite:U .*quay-rhel8:v3\.12\.18 registry\n$/s);
  });

  it('moves the database of a registry with PostgreSQL, and changes no other word of its units', async () => {
    const fixture = await install({ age: '1.3.11' });
    const { migration, units, restart, blockers } = await planFixture(fixture, latest);
    expect(migration).to.deep.equal({
      storage: 'sqlite-storage',
      configuration: `${fixture.quayRoot}/quay-config/config.yaml`,
      retired: 'quay-postgres',
    });
    const unit = units.find(({ path }) => path.endsWith('quay-app.service'));
    expect(unit?.after).to.equal(
      unit?.before
        .replaceAll(' quay-postgres.service', '')
        .replace(/-v (?=\S+:\/quay-registry)/, '-v sqlite-storage:/sqlite:Z,U -v ')
        .replace(
          imagesOf('1.3.11').quay,
          `-e PYTHONUSERBASE_SITE_PACKAGE=/opt/app-root/lib/python3.12/site-packages ${latest.quay}`,
        ),
    );
    expect([restart, blockers]).to.deep.equal([['quay-pod', 'quay-redis', 'quay-app'], []]);
    expect((await planFixture(fixture, { quay: imagesOf('1.3.10').quay })).migration).to.equal(undefined);
  });

  it('leaves the pod of 1.0.0 as it is, because it has no unit', async () => {
    const { images, units, restart, blockers } = await planFixture(await install({ age: '1.0.0' }), latest);
    expect(images.map(({ component }) => component)).to.deep.equal(['redis', 'quay']);
    expect(units.map(({ path }) => basename(path))).to.deep.equal(['quay-redis.service', 'quay-app.service']);
    expect(units[1]?.after).to.match(/^Requires= ?quay-redis\.service$/m);
    expect([restart, blockers]).to.deep.equal([['quay-redis', 'quay-app'], []]);
  });

  it('takes the password of Redis off the command line', async () => {
    const fixture = await install({ age: '2.0.7' });
    const path = `${fixture.unitFolder}/quay-redis.service`;
    const text = await readFile(fixture.root + path, 'utf8');
    const secret = '--secret=redis_pass,type=env,target=REDIS_PASSWORD';
    for (const given of ['-e REDIS_PASSWORD=strong', '--env=REDIS_PASSWORD=strong']) {
      await fixture.write(path, text.replace(secret, given));
      const [unit] = (await planFixture(fixture, { redis: latest.redis })).units;
      expect(unit?.after).to.equal(text.replace(imagesOf('2.0.7').redis, latest.redis));
    }
  });

  it('refuses unsupported changes: another database, an older Quay, an expired certificate of the administrator', async () => {
    const old = await planFixture(await install({ age: '1.2.9' }), { quay: imagesOf('1.3.10').quay });
    expect(old.blockers.join()).to.include('within Quay 3.7, or to').and.to.include('quay-postgres.service:');
    const elsewhere = await install({ age: '1.3.11' });
    await elsewhere.write(
      `${elsewhere.quayRoot}/quay-config/config.yaml`,
      'SERVER_HOSTNAME: a\nDB_URI: postgresql://u:p@db/quay\n',
    );
    expect((await planFixture(elsewhere, latest)).blockers.join()).to.include('not in the one of its installer');
    await failureOf(
      Promise.resolve().then(() => {
        requireFeasible(old);
      }),
      'unsupported',
    );

    const back = await planFixture(await install({ age: '2.0.11' }), { quay: imagesOf('2.0.7').quay });
    expect(back.blockers.join()).to.include('the database cannot be downgraded');

    const mixed = await install({ age: '2.0.7', configuration: '' });
    await installCertificates(mixed);
    await copyFile(
      join(mixed.root, mixed.quayRoot, 'quay-rootCA/rootCA.key'),
      join(mixed.root, mixed.quayRoot, 'quay-config/ssl.key'),
    );
    expect((await planFixture(mixed, latest)).blockers.join())
      .to.include('ssl.key is not the key of')
      .and.to.include('a new key is needed');

    const own = await install({ age: '2.0.7', configuration: '' });
    await installOwnCertificate(own, 'elsewhere.example.com');
    const plan = await planFixture(own, latest);
    expect(plan.blockers.join()).to.include('does not name the host registry.example.com');
    expect(plan.due.join()).to.match(/expires on .*, and this program does not renew it/);
  });

  it('says when an image comes from somewhere else', async () => {
    const fixture = await install({ age: '2.0.7' });
    const { warnings } = await planFixture(fixture, { quay: 'elsewhere.example.com:5000/quay:v3.12.18' });
    expect(warnings.join()).to.include('from another repository');
    expect((await planFixture(fixture, { quay: latest.quay })).warnings).to.deep.equal([]);
  });

  for (const digit of ['a', '9']) {
    it(`ignores images by a digest that begins with ${digit}, and continues`, async () => {
      const fixture = await install({ age: '2.0.7', images: { quay: `quay.local/quay@sha256:${digit.repeat(64)}` } });
      const plan = await planFixture(fixture, { quay: latest.quay });
      expect(plan.blockers).to.deep.equal([]);
      expect(plan.warnings.join()).to.include('do not tell which is newer');
    });
  }

  it('takes the version of an image by tag and digest from its tag', async () => {
    const quay = `${imagesOf('2.0.7').quay}@sha256:${'9'.repeat(64)}`;
    const plan = await planFixture(await install({ age: '2.0.7', images: { quay } }), latest);
    expect([plan.from, plan.to, plan.blockers]).to.deep.equal(['2.0.7', '2.0.11', []]);
  });

  it('makes units that systemd reads without a word', async function () {
    requirePeer(this, 'systemd-analyze');
    const folder = await mkdtemp(join(tmpdir(), 'units-'));
    try {
      for (const age of fixtureAges.filter((name) => name.startsWith('2.'))) {
        const fixture = await install({ age });
        await writeUnits(fixture, await planFixture(fixture, latest));
        const names = ['quay-app.service', 'quay-redis.service', 'quay-pod.service'];
        for (const name of names) {
          const text = await readFile(`${fixture.root}${fixture.unitFolder}/${name}`, 'utf8');
          await writeFile(join(folder, name), text.replaceAll('/usr/bin/podman', '/bin/true'));
        }
        const { code, stderr } = await run('systemd-analyze', [
          'verify',
          '--man=no',
          ...names.map((name) => join(folder, name)),
        ]);
        const complaints = stderr
          .split('\n')
          .filter((line) => line.includes('quay-') && !line.includes('KillMode=none'));
        expect([code, complaints]).to.deep.equal([0, []]);
      }
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});

describe('formatUnifiedDiff', () => {
  const before = Array.from({ length: 40 }, (_line, index) => `line ${index}`).join('\n') + '\n';
  const after = before
    .replace('line 3\n', '')
    .replace('line 20', 'line twenty')
    .replace('line 39\n', 'line 39\nmore\n');

  it('prints a diff that patch applies', async function () {
    requirePeer(this, 'patch');
    const folder = await mkdtemp(join(tmpdir(), 'diff-'));
    try {
      await writeFile(join(folder, 'unit'), before);
      const diff = formatUnifiedDiff('unit', before, after);
      await runSuccessfully('patch', ['--fuzz=0', 'unit'], { cwd: folder, input: diff });
      expect(await readFile(join(folder, 'unit'), 'utf8')).to.equal(after);
      expect(diff.match(/^@@ /gm)).to.have.length(3);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('says nothing of equal texts, and no values of variables', () => {
    expect(formatUnifiedDiff('unit', before, before)).to.equal('');
    const diff = formatUnifiedDiff(
      'unit',
      'a\n-e PASSWORD=secret -e WORKER_COUNT=1\n',
      'b\n-e PASSWORD=secret -e WORKER_COUNT=1\n',
    );
    expect(diff).to.include('-e PASSWORD=… -e WORKER_COUNT=1').and.not.to.include('secret');
  });
});
