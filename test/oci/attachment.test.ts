import { expect } from 'chai';
import { attachedTo, attachmentTag } from '../../lib/oci/attachment.ts';
import { digestOf } from '../../lib/oci/digest.ts';

describe('attachmentTag and attachedTo', () => {
  const digest = digestOf('image');

  it('lead from an image to the tag of its signature and back', () => {
    expect(attachmentTag(digest)).to.match(/^sha256-[0-9a-f]{64}\.sig$/);
    expect(attachedTo(attachmentTag(digest))).to.equal(digest);
  });

  it('take no other tag for one', () => {
    const hex = digest.slice(7);
    for (const tag of [
      '4.12.4-x86_64',
      digest,
      `sha256-${hex}`,
      `sha256-${hex}.att`,
      `sha256-${hex}0.sig`,
      'sha256-.sig',
    ]) {
      expect(attachedTo(tag), tag).to.equal(undefined);
    }
  });
});
