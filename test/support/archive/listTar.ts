import { Parser } from 'tar';

/** An entry of a tar, and the text of a file. */
interface ListedEntry {
  path: string;
  mode: number | undefined;
  uid: number | undefined;
  gid: number | undefined;
  mtime: string | undefined;
  text: string;
}

/** Lists the entries of a tar, in order. Throws the first problem of the tar. */
export async function listTar(bytes: Buffer): Promise<ListedEntry[]> {
  const found: ListedEntry[] = [];
  const parser = new Parser({
    strict: true,
    onReadEntry: (entry) => {
      const { path, mode, uid, gid, mtime } = entry;
      const file = { path, mode, uid, gid, mtime: mtime?.toISOString(), text: '' };
      found.push(file);
      entry.on('data', (chunk) => (file.text += chunk.toString()));
      entry.resume();
    },
  });
  await new Promise<void>((resolve, reject) => {
    parser.on('close', resolve).on('error', reject);
    parser.end(bytes);
  });
  return found;
}
