import { readlinkSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';

/** A part of a file in bytes. */
interface Part {
  readonly start: number;
  readonly size: number;
}

/** Makes reads of a part of a file fail in this process, as on a disk with errors, until it is disposed. Linux only. */
export async function failReads(path: string, { start, size }: Part): Promise<Disposable> {
  await using handle = await open(path);
  const prototype = Object.getPrototypeOf(handle) as { read: (...args: unknown[]) => Promise<unknown> };
  const { read } = prototype;
  prototype.read = async function (this: FileHandle, ...args) {
    const [, , length, position] = args.map(Number) as [number, number, number, number];
    const isHit = position < start + size && position + length > start;
    if (isHit && readlinkSync(`/proc/self/fd/${this.fd}`) === path) {
      throw Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO', syscall: 'read' });
    }
    return read.apply(this, args);
  };
  return {
    [Symbol.dispose]: () => {
      prototype.read = read;
    },
  };
}
