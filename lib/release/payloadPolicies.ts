import type { Context } from '../context.ts';
import { messageOf } from '../errors.ts';
import { readDocuments } from './documents.ts';
import type { PayloadFiles } from './payload.ts';
import { isImagePolicy, readImagePolicy, type ImagePolicy } from './sigstore/imagePolicy.ts';

// The real ones have 3 KB. They are read before the signature of the payload is checked.
const limits = { length: 1024 * 1024, tokens: 20_000 };

// The CustomResourceDefinitions of these kinds name them too, but indented.
const kindLine = /^(?:kind: *["']?|\s*"kind": *")(?:Cluster)?ImagePolicy["']?,?\s*$/m;

/** Reads the image policies in the manifests of a payload. Skips a file that cannot be read, with a warning. */
export function readPayloadPolicies(files: PayloadFiles, context: Context): ImagePolicy[] {
  return [...files].flatMap(([name, content]) => {
    const text = content.toString('utf8');
    if (!kindLine.test(text)) return [];
    try {
      const objects = readDocuments(text, limits).values.filter(isImagePolicy);
      return objects.map((object) => readImagePolicy(object, `${name} of the release payload`));
    } catch (error) {
      context.log('warn', `${name} of the release payload is skipped: ${messageOf(error)}`);
      return [];
    }
  });
}
