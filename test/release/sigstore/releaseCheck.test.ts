import { expect } from 'chai';
import { parseManifest } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { readPayloadPolicies } from '../../../lib/release/payload/metadata.ts';
import { checkReleaseImages, type NamedImage } from '../../../lib/release/sigstore/releaseCheck.ts';
import { makeContext } from '../../support/context.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';
import { makeAttachment } from '../../support/release/signatureCases.ts';

describe('checkReleaseImages', () => {
  it('judges 190 images with two signatures each in less than a second of CPU', async () => {
    const [registry, repository] = ['quay.io', 'openshift-release-dev/ocp-v4.0-art-dev'];
    const images = Array.from({ length: 190 }, (_, index): NamedImage => {
      const digest = digestOf(`image ${index}`);
      return { name: `component-${index}`, reference: { registry, repository, digest } };
    });
    const made = images.map(({ reference: { digest } }) => {
      return [attachmentTag(digest), makeAttachment(digest, [{ digest: digestOf('other') }, {}])] as const;
    });
    const attachments = new Map(made);
    const payloads = new Map(
      made.flatMap(([, own]) => (own?.blobs ?? []).map((blob) => [digestOf(blob), blob] as const)),
    );
    const reader = {
      readList: () => Promise.resolve(undefined),
      readAttachment: (_image: NamedImage, tag: string) => {
        const bytes = attachments.get(tag)?.manifest;
        return Promise.resolve(bytes && parseManifest(bytes, tag));
      },
      readPayload: (_image: NamedImage, { digest }: { digest: `sha256:${string}` }) =>
        Promise.resolve(payloads.get(digest)),
    };
    const files = Object.entries(imagePolicyFiles()).map(([name, text]) => [name, Buffer.from(text)] as const);
    const policies = readPayloadPolicies(new Map(files), '4.21.0', makeContext());
    const before = process.cpuUsage();
    const results = await checkReleaseImages(images, policies, reader, new AbortController().signal);
    const { user, system } = process.cpuUsage(before);
    expect(results.map(({ outcome }) => outcome)).to.deep.equal(Array(190).fill('verified'));
    expect((user + system) / 1e6, 'seconds').to.be.lessThan(1);
  });
});
