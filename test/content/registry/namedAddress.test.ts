import { expect } from 'chai';
import { resolveNamedAddress, strangeOrigin } from '../../../lib/content/registry/transport.ts';

const from = new URL('https://registry.example:8443/v2/a/b/blobs/uploads/');
const upload = '/v2/a/b/blobs/uploads/1?_state=x%2By%3D';
const own = `https://registry.example:8443${upload}`;

/** What a registry names, the URL that is used, and the origin that is warned of. */
const cases: readonly (readonly [named: string, used: string | undefined, strange?: string])[] = [
  [upload, own],
  [own, own],
  [`http://registry.example:8443${upload}`, own],
  [`http://registry.example${upload}`, own, 'http://registry.example'],
  [`https://registry.example${upload}`, own, 'https://registry.example'],
  [`http://registry.internal.svc:5000${upload}`, own, 'http://registry.internal.svc:5000'],
  [`//other.example${upload}`, own, 'https://other.example'],
  [`https://user:secret@registry.example:8443${upload}`, own],
  [upload.slice(1), own],
  ['1?n=5', 'https://registry.example:8443/v2/a/b/blobs/uploads/1?n=5'],
  ['?n=5&last=x', 'https://registry.example:8443/v2/a/b/blobs/uploads/?n=5&last=x'],
  ['https://storage.example/bucket/1?sig=x', 'https://storage.example/bucket/1?sig=x'],
  ['https://user:secret@storage.example/bucket', 'https://storage.example/bucket'],
  ['http://storage.example/bucket', 'http://storage.example/bucket'],
  ['ftp://registry.example/v2/a', undefined],
  ['file:///v2/etc/passwd', undefined],
  ['https://[::1', undefined],
];

describe('an address that a registry names', () => {
  for (const [named, used, strange] of cases) {
    it(`${named} leads to ${used ?? 'no place'}`, () => {
      expect(resolveNamedAddress(named, from)?.href).to.equal(used);
      expect(strangeOrigin(named, from)).to.equal(strange);
    });
  }
});
