import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { createServer, get } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import {
  authoritySecret,
  issueMirrorCertificates,
  readSecret,
  servingSecret,
  warnOfForbidden,
  type IssuedCertificates,
  type MirrorNames,
} from '../../../lib/update/mirror/mirrorCertificates.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';

describe('issueMirrorCertificates', () => {
  let site: StartedCluster;
  beforeEach(async () => {
    site = await startCluster();
    site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
  });
  afterEach(() => site.close());
  const networks = ['192.0.2.0/24'];
  const issue = (names: Partial<MirrorNames>, days = 0, mayCreate = true): Promise<IssuedCertificates | undefined> =>
    issueMirrorCertificates(
      site.cluster,
      { addresses: ['192.0.2.11'], networks, ...names },
      { mayCreate, now: new Date(Date.now() + days * 86_400_000) },
    );
  const namesOf = (issued: IssuedCertificates | undefined) => issued?.written.map(({ metadata }) => metadata.name);

  it('issues a certificate that clients accept for each address, also outside the networks, and for the node itself', async () => {
    const issued = await issue({ addresses: ['203.0.113.5'], port: 9690 });
    expect(issued?.forbidden).to.deep.equal([]);
    const { 'tls.crt': cert, 'tls.key': key } = await readSecret(site.cluster, servingSecret);
    expect(new X509Certificate(cert ?? '').checkIP('203.0.113.5')).to.equal('203.0.113.5');
    const mirror = createServer({ cert, key }, (_, response) => void response.end('answered'));
    await once(mirror.listen(0, '127.0.0.1'), 'listening');
    try {
      const { port } = mirror.address() as AddressInfo;
      const asked = get({ host: '127.0.0.1', port, ca: issued?.authority, agent: false });
      const [response] = (await once(asked, 'response')) as [IncomingMessage];
      expect(await text(response)).to.equal('answered');
    } finally {
      mirror.close();
    }
  });

  it('renews the certificate after two thirds of its time and for new addresses, and never the CA', async () => {
    const issueFor = (addresses: string[], days: number, port = 9690) => issue({ addresses, port }, days);
    const first = await issueFor(['192.0.2.11'], 0);
    expect(namesOf(first)).to.deep.equal(['mirror-ca', 'mirror-serving']);
    expect(namesOf(await issueFor(['192.0.2.11'], 240))).to.deep.equal([]);
    expect(namesOf(await issueFor(['192.0.2.11'], 245))).to.deep.equal(['mirror-serving']);
    const other = await issueFor(['192.0.2.11', '192.0.2.12', '198.51.100.1'], 246);
    expect(namesOf(other)).to.deep.equal(['mirror-serving']);
    expect(other?.forbidden).to.deep.equal(['198.51.100.1']);
    expect(other?.authority).to.equal(first?.authority);
    expect(namesOf(await issueFor(['192.0.2.11'], 246, 9691))).to.deep.equal(['mirror-serving']);
  });

  it('permits the host names of the first mirrors and their subdomains, and no other names', async () => {
    await issue({ addresses: ['api-int.site.example'] });
    const { names, networks: permitted } = await readSecret(site.cluster, authoritySecret);
    expect(names).to.equal('localhost api-int.site.example');
    expect(permitted).to.equal('192.0.2.0/24 127.0.0.0/8 ::1/128');
    const again = await issue({
      addresses: ['api-int.site.example', 'a.api-int.site.example', 'aapi-int.site.example'],
    });
    expect(again?.forbidden).to.deep.equal(['aapi-int.site.example']);
  });

  it('creates no CA unless it may', async () => {
    expect(await issue({}, 0, false)).to.equal(undefined);
    expect(await readSecret(site.cluster, authoritySecret)).to.deep.equal({});
    await issue({});
    expect(namesOf(await issue({ port: 9690 }, 0, false))).to.deep.equal(['mirror-serving']);
  });

  it('keeps the port, the quota and the content that a renewal does not name', async () => {
    const read = async (): Promise<object> => {
      const { port, quota, content } = await readSecret(site.cluster, servingSecret);
      return { port, quota, content };
    };
    await issue({ port: 9700, quota: 5e10, content: 'metadata' });
    const chosen = { port: '9700', quota: '50000000000', content: 'metadata' };
    expect(await read()).to.deep.equal(chosen);
    expect(namesOf(await issue({}, 250))).to.deep.equal(['mirror-serving']);
    expect(await read()).to.deep.equal(chosen);
    expect(namesOf(await issue({ quota: 0 }))).to.deep.equal(['mirror-serving']);
    expect(await read()).to.deep.equal({ ...chosen, quota: '' });
  });
});

describe('warnOfForbidden', () => {
  it('names the addresses, and says nothing without any', () => {
    const context = makeContext();
    warnOfForbidden([], context);
    warnOfForbidden(['198.51.100.1', 'a.example'], context);
    expect(context.lines).to.deep.equal([
      'warn: the CA of the mirrors does not permit 198.51.100.1, a.example, so no node pulls from there. For a CA ' +
        'that permits them, remove the mirrors and install them again',
    ]);
  });
});
