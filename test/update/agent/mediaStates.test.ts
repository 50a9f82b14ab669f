import { expect } from 'chai';
import { MediaStates } from '../../../lib/update/agent/mediaStates.ts';
import type { FoundBundle } from '../../../lib/node/media/medium.ts';
import type { Digest } from '../../../lib/oci/digest.ts';

const digestOf = (digit: string): Digest => `sha256:${digit.repeat(64)}`;

describe('MediaStates', () => {
  it('describes a bundle that is not the allowed one by both digests, and reads the stated version first', () => {
    const found = { path: '/dev/sdb', version: '4.19.5', arch: 'x86_64', identity: digestOf('1') } as FoundBundle;
    const states = new MediaStates(digestOf('a'));
    expect(states.describeOther([found])).to.equal(undefined);
    expect(states.describeOther([{ ...found, digest: digestOf('f') }])).to.equal(
      `4.19.5 x86_64 on /dev/sdb has the digest ${digestOf('f')}, and ${digestOf('a')} is allowed: it is ignored`,
    );
    const allowed = { ...found, path: '/dev/sdc', version: '4.19.6' };
    expect(states.nextToVerify([found, allowed], '4.19.6')).to.equal(allowed);
    expect(states.nextToVerify([found, allowed], undefined)).to.equal(found);
    states.set(found, 'another', 'its digest is f, not a');
    expect(states.nextToVerify([found, allowed], '4.19.5')).to.equal(allowed);
    expect(states.describeOther([found])).to.equal('its digest is f, not a: it is ignored');
  });
});
