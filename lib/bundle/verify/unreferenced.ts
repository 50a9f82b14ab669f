import { attachedTo, attachmentName } from '../../content/oci/attachment.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { isReleaseTag } from '../../release/version.ts';
import { describeProblem, type Problem } from '../problem.ts';
import type { ScannedContent } from './scan.ts';
import type { Bundle, BundleFile } from '../bundle.ts';
import type { VisitedAttachments, Walk } from './walk.ts';

/**
 * Checks that each image has its tag, that each tag points to its image or an attachment, and that there are no other
 * tags. `expected` has the tags of the releases and of the extra images.
 */
export function checkTags(
  bundle: Bundle,
  { tags }: ScannedContent,
  expected: ReadonlyMap<string, Digest>,
  { images }: VisitedAttachments,
  walk: Walk,
): Problem[] {
  const problems: Problem[] = [];
  const roots = new Set([...expected].flatMap(([name, digest]) => (isReleaseTag(name) ? [digest] : [])));
  for (const [name, { path, digest, leadsTo }] of tags) {
    const expectedDigest = expected.get(name);
    const attached = attachedTo(name);
    if (digest === undefined) {
      problems.push(
        describeProblem('corrupt', 'tag', path, `the tag ${name} leads to ${leadsTo}, which is not a manifest`),
      );
    } else if (images.has(name)) {
      const words = `the tag ${name} leads to an image that can run, and not to the ${attachmentName(name)}`;
      problems.push(describeProblem('unexpected', 'tag', path, `${words} of ${attached ?? ''}`));
    } else if (expectedDigest !== undefined && expectedDigest !== digest) {
      problems.push(
        describeProblem('corrupt', 'tag', path, `the tag ${name} leads to ${digest} instead of ${expectedDigest}`),
      );
    } else if (
      expectedDigest === undefined &&
      !attached &&
      (bundle.form === 'tar' || (roots.has(digest) && isReleaseTag(name)))
    ) {
      problems.push(describeProblem('unexpected', 'tag', path, `the tag ${name} is not a tag of this release`));
    } else if (!walk.manifests.has(attached ?? digest) && !walk.isPartial && !isUnpackedDelta(bundle)) {
      problems.push(describeProblem('unexpected', 'tag', path, `the tag ${name} belongs to no image of this bundle`));
    }
  }
  // Other tools, and older versions of oc, write other tags.
  const missing = bundle.described && !bundle.damage ? [...expected].filter(([name]) => !tags.has(name)) : [];
  return [
    ...problems,
    ...missing.map(([name, digest]) =>
      describeProblem('missing', 'tag', name, `the tag ${name} of ${digest} is missing`),
    ),
  ];
}

/** Lists the content that no image needs, and special files. If manifests are missing, skips content that they may need. */
export function listUnreferenced(bundle: Bundle, scanned: ScannedContent, walk: Walk): Problem[] {
  const { manifests, blobs, others } = scanned;
  if (isUnpackedDelta(bundle)) return others.filter(({ isSpecial }) => isSpecial).map(describeOther);
  const expected = new Set(bundle.metadata.blobs.map(({ digest }) => digest));
  const mayBeNeeded = (digest: Digest): boolean => walk.isPartial && (!bundle.described || expected.has(digest));
  const spare =
    (kind: 'manifest' | 'blob') =>
    (digest: Digest): Problem =>
      describeProblem('unexpected', kind, digest, `the ${kind} ${digest} belongs to no image of this bundle`);
  return [
    ...[...manifests.keys()].filter((digest) => !walk.manifests.has(digest) && !walk.isPartial).map(spare('manifest')),
    // A mirror directory has its manifests also among the blobs.
    ...[...blobs.keys()]
      .filter((digest) => !walk.blobs.has(digest) && !(bundle.form === 'directory' && manifests.has(digest)))
      .filter((digest) => !mayBeNeeded(digest))
      .map(spare('blob')),
    ...others.map(describeOther),
  ];
}

function describeOther({ path, target, isSpecial }: BundleFile): Problem {
  const what = isSpecial ? 'is a pipe, socket or device' : target !== undefined ? `is a link to ${target}` : undefined;
  const words = what === undefined ? 'does not belong in a bundle' : `${what}, which does not belong in a bundle`;
  return describeProblem('unexpected', 'file', path, `${path} ${words}`);
}

/** Returns whether a bundle is a delta in a mirror directory, which also has the content of its base. */
function isUnpackedDelta({ form, metadata }: Bundle): boolean {
  return form === 'directory' && metadata.base !== undefined;
}
