import { expect } from 'chai';
import {
  attachedTo,
  attachmentTag,
  countAttachments,
  parseAttachmentTag,
} from '../../../lib/content/oci/attachment.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';

describe('the tags of attachments', () => {
  const digest = digestOf('image');
  const hex = digest.slice(7);

  it('lead from an image to its signature and back', () => {
    expect(attachmentTag(digest)).to.equal(`sha256-${hex}.sig`);
    expect(attachedTo(attachmentTag(digest))).to.equal(digest);
  });

  it('tell the kind', () => {
    for (const [suffix, kind] of [
      ['.sig', 'signature'],
      ['.att', 'attestation'],
      ['.sbom', 'sbom'],
      ['', 'referrers'],
    ] as const) {
      expect(parseAttachmentTag(`sha256-${hex}${suffix}`)).to.deep.equal({ subject: digest, kind });
      expect(attachmentTag(digest, kind)).to.equal(`sha256-${hex}${suffix}`);
    }
  });

  it('are no other tags', () => {
    for (const tag of ['4.12.4-x86_64', digest, `sha256-${hex}.src`, `sha256-${hex}0.sig`, 'sha256-.sig', 'sha256-']) {
      expect(attachedTo(tag), tag).to.equal(undefined);
    }
  });

  it('are counted by kind', () => {
    expect(countAttachments([])).to.equal('0 sigstore signatures');
    const tags = [attachmentTag(digest), attachmentTag(digest, 'sbom'), attachmentTag(digestOf('b'), 'sbom'), '4.12'];
    expect(countAttachments(tags)).to.equal('1 sigstore signature, 2 SBOMs');
  });
});
