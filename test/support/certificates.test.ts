import { X509Certificate } from 'node:crypto';
import { expect } from 'chai';
import { makeAuthority, type Authority } from './certificates.ts';

describe('makeAuthority', function () {
  let authority: Authority;

  before(async () => {
    authority = await makeAuthority();
  });

  after(() => authority.remove());

  it('issues a certificate for names and addresses, signed by the authority', async () => {
    const { certificate, key } = await authority.issue({ hosts: ['registry.example.com', '127.0.0.1'] });
    const issued = new X509Certificate(certificate);
    expect(issued.checkHost('registry.example.com')).to.equal('registry.example.com');
    expect(issued.checkIP('127.0.0.1')).to.equal('127.0.0.1');
    expect(issued.verify(new X509Certificate(authority.certificate).publicKey)).to.equal(true);
    expect(key).to.include('PRIVATE KEY');
  });

  it('issues one that is no longer valid', async () => {
    const { certificate } = await authority.issue({ expired: true });
    expect(new X509Certificate(certificate).validToDate.getTime()).to.be.below(Date.now());
  });
});
