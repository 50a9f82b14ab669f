import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Directory } from '../../../lib/content/store/directory.ts';
import { readPayload, type PayloadOptions, type Release } from '../../../lib/release/release.ts';
import { TestContent } from '../content/image.ts';
import type { TestLayer } from '../content/layers.ts';
import type { TestContext } from '../context.ts';
import { buildRelease, type ReleaseOptions } from './release.ts';

const repository = 'quay.io/openshift-release-dev/ocp-release';
const name = 'openshift-release-dev/ocp-release';

/** Returns functions that read payloads of releases from mirror directories, which are removed after the suite. */
export function usePayloads(context: TestContext) {
  let folder: string;
  let runs = 0;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'release-'));
  });
  after(() => rm(folder, { recursive: true }));
  beforeEach(() => context.lines.splice(0));

  /** Writes content as a mirror directory, and opens the release repository in it. */
  const openDirectory = async (content: TestContent['content']): Promise<Directory> => {
    const root = join(folder, String((runs += 1)));
    const base = join(root, 'v2', name);
    await mkdir(join(base, 'blobs'), { recursive: true });
    await mkdir(join(base, 'manifests'), { recursive: true });
    for (const [digest, body] of content.blobs) {
      if (Buffer.isBuffer(body)) await writeFile(join(base, 'blobs', digest), body);
    }
    const { manifests = new Map<string, { bytes: Buffer }>(), tags = new Map<string, string>() } =
      content.repositories.get(name) ?? {};
    for (const [digest, { bytes }] of manifests) await writeFile(join(base, 'manifests', digest), bytes);
    for (const [tag, digest] of tags) await symlink(digest, join(base, 'manifests', tag));
    return new Directory(root, name, {}, context);
  };
  const read = async (options: ReleaseOptions, wanted: Partial<PayloadOptions> = {}): Promise<Release> => {
    const release = buildRelease(options);
    const source = await openDirectory(release.content);
    return readPayload(source, await source.resolve(release.digest), { repository, ...wanted }, context);
  };
  const readLayers = async (layers: TestLayer[], config: Partial<{ architecture: string }> = {}): Promise<Release> => {
    const content = new TestContent();
    const descriptor = content.addImage(name, { architecture: 'amd64', ...config, layers });
    return readPayload(await openDirectory(content.content), descriptor, { repository }, context);
  };

  return { openDirectory, read, readLayers };
}
