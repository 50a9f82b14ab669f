import { Header, type HeaderData } from 'tar';

/** An entry of an archive; by default a file. */
export interface ArchiveEntry {
  readonly path: string;
  readonly text?: string;
  readonly type?: HeaderData['type'];
  readonly linkpath?: string;
  /** The size in the header, instead of the true size in bytes. */
  readonly size?: number;
}

/** The minimal graph data for an update service. */
export const soundFiles: readonly ArchiveEntry[] = [
  { path: 'LICENSE', text: 'Apache\n' },
  { path: 'blocked-edges/', type: 'Directory' },
  { path: 'blocked-edges/4.12.4.yaml', text: 'to: 4.12.4\nfrom: 4\\.11\\..*\n' },
  { path: 'channels/stable-4.12.yaml', text: 'name: stable-4.12\nversions:\n- 4.12.4\n' },
  { path: 'raw/metadata.json', text: '{}' },
  { path: 'version', text: '1.1.0\n' },
];

/** Creates a tar with the given entries, in that order, with unusual owners, modes and times, which must not matter. */
export function makeArchive(entries: readonly ArchiveEntry[], mtime = new Date()): Buffer {
  const blocks = entries.flatMap(({ path, text = '', type = 'File', linkpath, size }) => {
    const bytes = Buffer.from(text);
    const header = new Header({
      path,
      type,
      mode: 0o600,
      uid: 1000,
      gid: 1000,
      uname: 'somebody',
      mtime,
      size: size ?? bytes.length,
      ...(linkpath !== undefined && { linkpath }),
    });
    const block = Buffer.alloc(512);
    header.encode(block, 0);
    return [block, bytes, Buffer.alloc(-bytes.length & 511)];
  });
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}
