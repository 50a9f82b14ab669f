import { readSmallFile, readSmallInput } from '#content/files';
import { PluginError, messageOf } from '#errors';
import type { OptionRecord } from '../command.ts';
import { checkImage } from '../values.ts';

/** The option of commands that take a list of additional images. */
export const imageListOption = {
  'images-from': {
    type: 'string',
    describe: 'File with additional images, one on each line, with # before comments; - for the standard input',
    suggest: 'files',
    alsoTakes: 'stdin',
  },
} as const satisfies OptionRecord;

const sizeLimit = 1024 * 1024;

/**
 * Reads the images of `--images-from`; none without a file. Throws `invalid-file` with the line of a malformed image,
 * `too-large`, `not-found` and `not-readable`.
 */
export async function readImageList(path: string | undefined, stdin: AsyncIterable<Buffer>): Promise<string[]> {
  if (path === undefined) return [];
  const where = path === '-' ? 'the standard input' : path;
  const text = (
    path === '-' ? await readSmallInput(stdin, sizeLimit) : await readSmallFile(path, sizeLimit)
  ).toString();
  const lines = text.split(/\r?\n/).map((line) => line.replace(/(?:^|\s)#.*$/, '').trim());
  return lines.flatMap((image, index) => {
    if (image === '') return [];
    try {
      checkImage(image);
      return [image];
    } catch (cause) {
      const hint = 'Write one image on each line, such as registry.example.com/team/app:1.0, and # before a comment.';
      throw new PluginError('invalid-file', `${where}, line ${index + 1}: ${messageOf(cause)}`, { hint, cause });
    }
  });
}
