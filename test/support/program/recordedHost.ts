import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Host } from '../../../lib/node/machine/host.ts';

/** A host below a folder, whose systemctl notes its arguments and succeeds. */
export interface RecordedHost {
  readonly host: Host;
  /** Lists the arguments of each call so far. */
  calls(): Promise<string[]>;
  /** Takes the stand-in for chroot from the path again. */
  close(): void;
}

/** Makes a host in a folder. Until it is closed, chroot runs nothing on this machine. */
export async function makeRecordedHost(folder: string): Promise<RecordedHost> {
  const { PATH } = process.env;
  const root = join(folder, 'host');
  const bin = join(folder, 'bin');
  for (const each of [bin, ...['usr/bin', 'etc/systemd/system'].map((path) => join(root, path))])
    await mkdir(each, { recursive: true });
  // The host’s file system is this machine’s, below a folder.
  const script = `#!/bin/sh\nshift\nshift\necho "$@" >> ${folder}/calls\n`;
  await writeFile(join(bin, 'chroot'), script, { mode: 0o755 });
  await writeFile(join(root, 'usr/bin/systemctl'), '', { mode: 0o755 });
  process.env['PATH'] = `${bin}:${PATH ?? ''}`;
  return {
    host: { root, environment: process.env },
    calls: async () =>
      (await readFile(join(folder, 'calls'), 'utf8').catch(() => '')).split('\n').filter((line) => line !== ''),
    close: () => {
      process.env['PATH'] = PATH;
    },
  };
}
