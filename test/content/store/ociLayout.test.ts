import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { OciLayout } from '../../../lib/content/store/ociLayout.ts';
import { readBody, repositoryOf } from '../../fakes/registry/content.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { describeSource } from './contract.ts';

describeSource('OciLayout', async (content, repository, context) => {
  const root = await makeFolder();
  const at = (digest: string): string => join(root, 'blobs/sha256', digest.replace('sha256:', ''));
  await mkdir(join(root, 'blobs/sha256'), { recursive: true });
  for (const [digest, body] of content.blobs) await writeFile(at(digest), readBody(body));
  const { manifests, tags } = repositoryOf(content, repository);
  for (const [digest, { bytes }] of manifests) await writeFile(at(digest), bytes);
  const entries = [...tags].map(([tag, digest]) => {
    const { mediaType, bytes } = manifests.get(digest) ?? { mediaType: '', bytes: Buffer.alloc(0) };
    return { mediaType, digest, size: bytes.length, annotations: { 'org.opencontainers.image.ref.name': tag } };
  });
  await writeFile(join(root, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}');
  await writeFile(join(root, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests: entries }));
  return {
    store: new OciLayout(root, context),
    damage: async (digest, change) => writeFile(at(digest), change(await readFile(at(digest)))),
    remove: () => removeFolder(root),
  };
});
