import { copyFile, mkdir, readdir, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { verifyBundle } from '../../../lib/bundle/verify.ts';
import { Media, type MediaEvent } from '../../../lib/node/media.ts';
import { makeContext } from '../context.ts';
import { Drives } from '../loopDevice.ts';
import { makeFolder, removeFolder } from '../release/mirrorDirectory.ts';
import type { TestBundle } from './bundle.ts';

/** Gives each test of the suite drives of its own, and returns functions that search them for bundles. */
export function useMediaSite() {
  let folder: string;
  let drives: Drives;
  let place: string;
  const opened: Media[] = [];
  beforeEach(async () => {
    folder = await makeFolder();
    drives = await Drives.open(folder);
    place = join(folder, 'media');
  });
  afterEach(async () => {
    for (const media of opened.splice(0)) await media.close();
    await drives.close();
    await removeFolder(folder);
  });

  const openMedia = async (context = makeContext(), devices: string[] = [], deviceTimeout?: number): Promise<Media> => {
    const host = { root: '/', environment: { ...process.env, PATH: drives.path } };
    const media = await Media.open(
      { host, place, devices, ...(deviceTimeout !== undefined && { deviceTimeout }) },
      context,
    );
    opened.push(media);
    return media;
  };
  /** Copies the files of bundles into a folder, to create an image of a USB drive. */
  const gather = async (...bundles: TestBundle[]): Promise<string> => {
    const files = join(folder, 'files');
    await rm(files, { recursive: true, force: true });
    await mkdir(files);
    for (const { folder: from } of bundles)
      for (const name of await readdir(from))
        if (name.startsWith('upgrade-')) await copyFile(join(from, name), join(files, name));
    return files;
  };
  const search = async (media: Media): Promise<MediaEvent[]> => {
    await drives.list();
    return media.search();
  };
  const brief = (events: readonly MediaEvent[]): string[] =>
    events.map((event) => {
      if (event.event === 'conflict') return `conflict of ${event.paths.length}`;
      return `${event.event} ${event.device} ${'version' in event ? event.version : basename(event.path)}`;
    });
  const expectGood = async (path: string): Promise<void> => {
    const bundle = await openBundle(path, makeContext());
    const { problems } = await verifyBundle(bundle, {}, makeContext());
    await bundle[Symbol.asyncDispose]();
    expect(problems).to.deep.equal([]);
  };

  return { made: () => ({ folder, drives, place, opened }), openMedia, gather, search, brief, expectGood };
}
