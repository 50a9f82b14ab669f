import { X509Certificate } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import {
  describeState,
  listChangedUnits,
  readState,
  type RegistryState,
  type StateChange,
} from '../../../lib/registry-host/detect/registryState.ts';
import { sha256Of } from '../../../lib/registry-host/installation/fileChange.ts';
import { StateFolder } from '../../../lib/registry-host/installation/stateFolder.ts';
import { openFixtures, type Fixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { installCertificates } from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { detectFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { requirePeer } from '../../support/peers.ts';

const sha256 = 'a'.repeat(64);

describe('readState', () => {
  let root: string;
  const installation = { quayRoot: { value: '/quay', file: '', line: 0 } };
  const put = (text: string, mode = 0o600): Promise<void> =>
    writeFile(join(root, 'quay/.oc-mirror-registry/state.json'), text, { mode });
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'state-'));
    await mkdir(join(root, 'quay/.oc-mirror-registry'), { recursive: true, mode: 0o700 });
  });
  afterEach(() => rm(root, { recursive: true }));

  it('takes the record of the last change in another form as missing', async () => {
    const files = new HostFiles(root);
    expect(await readState(files, installation)).to.equal(undefined);
    const state = {
      images: { quay: { ref: 'quay', id: 'id' } },
      certs: { leafSha256: sha256, notAfter: '2027-01-01T00:00:00.000Z', origin: 'auto' },
      unitSha256: { '/units/quay-app.service': sha256 },
    };
    await put(JSON.stringify(state));
    expect(await readState(files, installation)).to.deep.equal(state);
    for (const text of [
      '{',
      'null',
      '{"images":{"quay":null},"unitSha256":{}}',
      '{"images":{},"unitSha256":{"a":7}}',
      '{"images":{},"unitSha256":{},"certs":null}',
      '{"images":{},"unitSha256":{},"certs":{"leafSha256":7}}',
      '{"images":{},"unitSha256":{},"lastUpgrade":{}}',
    ]) {
      await put(text);
      expect(await readState(files, installation), text).to.equal(undefined);
    }
  });
});

describe('describeState', function () {
  requirePeer(this, 'openssl');
  const install = openFixtures();
  let fixture: Fixture;
  beforeEach(async () => {
    fixture = await install({ age: '2.0.7' });
    await installCertificates(fixture);
  });
  const read = (path: string): Promise<Buffer> => readFile(join(fixture.root, path));
  /** Records a change, and writes the record. */
  async function record(change: Partial<StateChange>): Promise<RegistryState> {
    const detected = await detectFixture(fixture);
    const options = { version: '2.0.7', images: new Map(), origin: undefined, changes: [] };
    const { path, before, after, mode } = await describeState(new HostFiles(fixture.root), {
      ...{ detected, ...options },
      ...change,
    });
    expect(path).to.equal(`${fixture.quayRoot}/.oc-mirror-registry/state.json`);
    expect(mode).to.equal(0o600);
    expect(before).to.deep.equal(await read(path).catch(() => undefined));
    await new StateFolder(new HostFiles(fixture.root), detected.installation).write('state.json', String(after));
    return (await readState(new HostFiles(fixture.root), detected.installation)) ?? expect.fail('it cannot be read');
  }

  it('has the digests of units as they are after the change', async () => {
    const path = `${fixture.unitFolder}/quay-app.service`;
    const { unitSha256 } = await record({
      changes: [{ path, before: undefined, after: Buffer.from('x'), mode: 0o644 }],
    });
    expect(unitSha256[path]).to.equal(sha256Of('x'));
    const redis = `${fixture.unitFolder}/quay-redis.service`;
    expect(unitSha256[redis]).to.equal(sha256Of(await read(redis)));
    expect(Object.keys(unitSha256)).to.have.length(3);
  });

  it('keeps the images that units still name, and the time of the last upgrade', async () => {
    const { quay, redis } = imagesOf('2.0.7');
    const images = new Map([
      ['quay', { ref: quay, id: 'a' }],
      ['redis', { ref: 'r/redis:older', id: 'b' }],
    ] as const);
    await record({ images, lastUpgrade: '2026-11-20T10:00:00.000Z' });
    const next = await record({ version: '2.0.8', images: new Map([['pause', { ref: 'r/pause:1', id: 'c' }]]) });
    expect(next.images).to.deep.equal({ quay: { ref: quay, id: 'a' }, pause: { ref: 'r/pause:1', id: 'c' } });
    expect(next).to.include({ version: '2.0.8', lastUpgrade: '2026-11-20T10:00:00.000Z' });
    const again = await record({ images: new Map([['redis', { ref: redis, id: 'd' }]]) });
    expect(again.images).to.deep.equal({ quay: { ref: quay, id: 'a' }, redis: { ref: redis, id: 'd' } });
  });

  it('has the certificate after the change, with its CA if this program renews it, and keeps it otherwise', async () => {
    const leaf = new X509Certificate(await read(`${fixture.quayRoot}/quay-config/ssl.cert`));
    const root = new X509Certificate(await read(`${fixture.quayRoot}/quay-rootCA/rootCA.pem`));
    const { certs } = await record({ origin: 'auto' });
    expect(certs).to.deep.equal({
      leafSha256: sha256Of(leaf.raw),
      caSha256: sha256Of(root.raw),
      notAfter: leaf.validToDate.toISOString(),
      origin: 'auto',
    });
    expect((await record({})).certs).to.deep.equal(certs);
    const path = `${fixture.quayRoot}/quay-config/ssl.cert`;
    const changes = [{ path, before: undefined, after: Buffer.from(root.toString()), mode: 0o644 }];
    const { leafSha256, ...rest } = (await record({ origin: 'own', changes })).certs ?? expect.fail('there is none');
    expect(leafSha256).to.equal(sha256Of(root.raw));
    expect(rest).to.deep.equal({ notAfter: root.validToDate.toISOString(), origin: 'own' });
    expect(
      (await record({ origin: 'own', changes: changes.map((each) => ({ ...each, after: undefined })) })).certs,
    ).to.equal(undefined);
  });
});

describe('listChangedUnits', () => {
  const install = openFixtures();

  it('names units and drop-ins that were changed, added or removed since', async () => {
    const fixture = await install({ age: '2.0.7', dropIns: { 'quay-redis.service.d/a.conf': '[Service]\n' } });
    const list = async (changed: RegistryState['unitSha256'] = {}): Promise<string[]> => {
      const detected = await detectFixture(fixture);
      const { after } = await describeState(new HostFiles(fixture.root), {
        ...{ detected, version: undefined, images: new Map(), origin: undefined, changes: [] },
      });
      const state = JSON.parse(String(after)) as RegistryState;
      return listChangedUnits({ ...state, unitSha256: { ...state.unitSha256, ...changed } }, detected);
    };
    expect(await list()).to.deep.equal([]);
    const at = (name: string): string => `${fixture.unitFolder}/${name}`;
    const changed = {
      [at('quay-redis.service.d/a.conf')]: sha256,
      [at('quay-app.service.d/gone.conf')]: sha256,
    };
    expect(await list(changed)).to.deep.equal(Object.keys(changed).toSorted());
    expect(await list({ [at('quay-postgres.service')]: sha256 }), 'of PostgreSQL').to.deep.equal([]);
    await rm(join(fixture.root, at('quay-redis.service.d/a.conf')));
    const detected = await detectFixture(fixture);
    const added = listChangedUnits({ images: {}, unitSha256: {} }, detected);
    expect(added).to.deep.equal(['quay-app', 'quay-pod', 'quay-redis'].map((name) => at(`${name}.service`)));
  });
});
