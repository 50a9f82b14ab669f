import { expect } from 'chai';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import type { FoundBundle } from '../../../lib/node/media/medium.ts';
import { MediaStates } from '../../../lib/update/agent/mediaStates.ts';

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

  it('does not call the base of the allowed delta bundle another one', () => {
    const at = (path: string, version: string, arch: string, digit: string, base?: string): FoundBundle =>
      ({ path, version, arch, base, identity: digestOf(digit), digest: digestOf(digit) }) as FoundBundle;
    const states = new MediaStates(digestOf('a'));
    const delta = at('/dev/sdb', '4.19.6', 'x86_64', 'a', '4.19.5');
    expect(states.describeOther([delta, at('/dev/sdc', '4.19.5', 'x86_64', 'b')])).to.equal(undefined);
    for (const other of [at('/dev/sdc', '4.19.5', 'aarch64', 'b'), at('/dev/sdc', '4.19.4', 'x86_64', 'b')])
      expect(states.describeOther([delta, other])).to.contain(`${other.version} ${other.arch} on /dev/sdc`);
  });

  it('expects the allowed digest until the facts are known', () => {
    const states = new MediaStates(digestOf('a'));
    const found = (digest?: Digest): FoundBundle => ({ digest }) as FoundBundle;
    const expected = (): boolean[] =>
      [digestOf('a'), digestOf('b'), undefined].map((digest) => states.isExpected(found(digest)));
    expect(expected()).to.deep.equal([true, false, false]);
    states.facts = {} as NonNullable<MediaStates['facts']>;
    expect(expected()).to.deep.equal([true, true, true]);
  });
});
