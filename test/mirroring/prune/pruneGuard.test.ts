import { expect } from 'chai';
import { openAccess } from '../../../cmd/cli/access.ts';
import { parseManifest } from '../../../lib/content/oci/descriptor.ts';
import { Registries } from '../../../lib/content/registry/registries.ts';
import type { ContentStore } from '../../../lib/content/store/store.ts';
import { guardCopies } from '../../../lib/mirroring/prune/pruneGuard.ts';
import { writeRecord } from '../../../lib/mirroring/prune/pruneRecord.ts';
import { makeSample, type Sample } from '../../content/store/contract.ts';
import { repositoryOf } from '../../fakes/registry/content.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('guardCopies', () => {
  const repository = 'openshift/release';
  const context = makeContext();
  let sample: Sample;
  let server: TestRegistry;
  let registries: Registries;
  let store: ContentStore;
  let bytes: Buffer;

  beforeEach(async () => {
    sample = makeSample(repository);
    server = await startRegistry({ content: sample.content });
    registries = new Registries(await openAccess({ insecure: true }, {}), context);
    store = registries.repository({ registry: server.host, repository });
    ({ bytes } = manifests().get(sample.image.digest)!);
  });
  afterEach(async () => {
    await registries[Symbol.asyncDispose]();
    await server.stop();
  });

  const manifests = () => repositoryOf(sample.content, repository).manifests;
  const beforeReleases = (tags: readonly string[] = []): Promise<void> => {
    const manifest = parseManifest(bytes, 'the image');
    const own = new Map([[sample.image.digest, { descriptor: sample.image, manifest, bytes }]]);
    const images = [{ name: 'etcd', root: sample.image, manifests: own, tags }];
    return guardCopies(2, context).beforeReleases([{ store, images }]);
  };

  it('lets a release be tagged if its images are there and no other run removes any', async () => {
    await beforeReleases();
  });

  it('notices a run that began to remove releases', async () => {
    const run = { host: 'build-7', began: '', process: { host: 'another', kernel: '', pid: 1, started: '1' } };
    await writeRecord(store, { releases: ['1.0-x86_64'], tags: [], manifests: [], blobs: [], run });
    await failureOf(beforeReleases(), 'busy');
  });

  it('waits for images that the registry shows seconds after it has accepted them', async () => {
    const late = server.fault(/^HEAD/, { answer: { status: 404 } }, { times: 2 });
    await beforeReleases();
    expect(late.hits).to.equal(2);
  });

  it('notices images that a run removed which has ended', async () => {
    manifests().delete(sample.image.digest);
    await failureOf(beforeReleases(), 'conflict');
    // The run removed its tag with it.
    await failureOf(beforeReleases(['1.0-x86_64-etcd']), 'conflict');
  });

  it('asks for no image whose tag the registry lists', async () => {
    repositoryOf(sample.content, repository).tags.set('1.0-x86_64-etcd', sample.image.digest);
    const asked = server.fault(/^HEAD/, {});
    await beforeReleases(['1.0-x86_64-etcd']);
    expect(asked.hits).to.equal(0);
  });

  it('notices a run that removes an image and ends between its requests', async () => {
    const run = { host: 'build-7', began: '', process: { host: 'another', kernel: '', pid: 1, started: '1' } };
    const { tag } = await writeRecord(store, { releases: [], tags: [], manifests: [], blobs: [], run });
    const { tags } = repositoryOf(sample.content, repository);
    const seen = new Set<string>();
    const match = ({ path }: { readonly path: string }): boolean => {
      const isList = path.endsWith('/tags/list');
      if (!isList && !path.endsWith(sample.image.digest)) return false;
      seen.add(isList ? 'list' : 'image');
      if (seen.size === 2) {
        tags.delete(tag);
        manifests().delete(sample.image.digest);
      }
      return false;
    };
    server.fault(match, {});
    expect((await failureOf(beforeReleases(), 'busy')).message).to.include(store.name);
  });
});
