import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { ReleaseProvider } from '../../lib/bundle/create/releaseProvider.ts';
import { findRelease, loadRelease, type SignedRelease, type TrustRequest } from '../../lib/release/load.ts';
import { openWorkshop, type Workshop } from '../support/content/creation.ts';
import { openProvider } from '../support/content/provider.ts';
import { makeContext, type TestContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { signDigest } from '../support/release/signing.ts';

describe('findRelease', () => {
  let workshop: Workshop;
  let provider: ReleaseProvider;
  before(async () => {
    workshop = await openWorkshop();
    provider = openProvider(makeContext());
  });
  after(async () => {
    await provider[Symbol.asyncDispose]();
    await workshop.close();
  });
  const find = (request: Parameters<typeof findRelease>[0]) =>
    findRelease(request, (reference) => provider.sourceOf(reference));
  const repository = (): string => `${workshop.release.registry}/${workshop.release.releaseRepository}`;

  it('finds a release by version and architecture, by tag and by digest', async () => {
    const { digest, pullspec, tag } = workshop.release;
    const requests = [
      { version: '4.12.4', arch: 'x86_64', repository: repository() },
      { image: `${repository()}:${tag}` },
      { image: pullspec },
    ] as const;
    for (const request of requests) {
      const { reference, descriptor } = await find(request);
      expect(descriptor.digest).to.equal(digest);
      expect(reference).to.deep.equal({
        registry: workshop.release.registry,
        repository: workshop.release.releaseRepository,
        digest,
      });
    }
  });

  it('refuses an image without tag and digest, an unknown image and an unknown version', async () => {
    await failureOf(find({ image: repository() }), 'usage');
    await failureOf(find({ image: `${repository()}:nope` }), 'not-found');
    const error = await failureOf(
      find({ version: '4.12.9', arch: 'x86_64', repository: repository() }),
      'unknown-version',
    );
    expect(error.message).to.include(repository());
    expect(error.hint).to.include('4.12.4');
  });

  it('requests no tag list if the version exists', async () => {
    const before = workshop.registry.requests.length;
    await find({ version: '4.12.4', arch: 'x86_64', repository: repository() });
    expect(workshop.registry.requests.slice(before).some(({ path }) => path.endsWith('/tags/list'))).to.equal(false);
  });
});

describe('loadRelease', () => {
  let workshop: Workshop;
  let provider: ReleaseProvider;
  let context: TestContext;
  afterEach(async () => {
    await provider[Symbol.asyncDispose]();
    await workshop.close();
  });
  const open = async (options: Parameters<typeof openWorkshop>[0] = {}): Promise<void> => {
    workshop = await openWorkshop(options);
    context = makeContext();
    provider = openProvider(context);
  };
  const load = async (changes: Partial<TrustRequest> = {}, wanted = {}): Promise<SignedRelease> => {
    const found = await findRelease({ image: workshop.release.pullspec }, (reference) => provider.sourceOf(reference));
    const trust: TrustRequest = {
      keyrings: [],
      fingerprints: [workshop.key.fingerprint],
      known: new Map(),
      allowUnsigned: false,
      fetchFile: provider.fetchFile,
      ...changes,
    };
    return loadRelease(found, wanted, trust, context);
  };

  it('gives the release with its good signatures', async () => {
    await open();
    const { release, signatures } = await load();
    expect(release).to.deep.include({ version: '4.12.4', arch: 'x86_64', pullspec: workshop.release.pullspec });
    expect([...signatures.keys()]).to.deep.equal([workshop.release.digest]);
    expect(signatures.get(release.digest)?.[0]?.fingerprint).to.equal(workshop.key.fingerprint);
  });

  it('gives the signatures of children that have any, and does not need them', async () => {
    await open({ release: { arch: 'multi' } });
    const { release, children } =
      workshop.release.children.length > 0
        ? { release: workshop.release, children: workshop.release.children }
        : { release: workshop.release, children: [] };
    expect([...(await load()).signatures.keys()]).to.deep.equal([release.digest, ...children]);
    for (const path of (workshop.signatures.files as Map<string, Buffer>).keys()) {
      if (children[0] !== undefined && path.includes(children[0].slice(7)))
        (workshop.signatures.files as Map<string, Buffer>).delete(path);
    }
    expect([...(await load()).signatures.keys()]).to.deep.equal([release.digest, ...children.slice(1)]);
  });

  it('asks no store if signatures are available, and checks them before the payload is read', async () => {
    await open();
    const { release, key, folder } = workshop;
    await writeFile(join(folder, 'key.asc'), key.publicKey);
    const known = new Map([[release.digest, [await signDigest(key, release.digest)]]]);
    const { signatures } = await load({ known, keyrings: [join(folder, 'key.asc')] });
    expect(signatures.size).to.equal(1);
    expect(workshop.signatures.requests).to.deep.equal([]);
    const before = workshop.registry.requests.length;
    const other = new Map([[release.digest, [Buffer.from('nonsense')]]]);
    await workshop.signatures.stop();
    await failureOf(load({ known: other, keyrings: [join(folder, 'key.asc')], store: folder }), 'untrusted');
    expect(workshop.registry.requests.slice(before).some(({ path }) => path.includes('/blobs/'))).to.equal(false);
  });

  it('reads no payload that can have no signature', async () => {
    await open({ signed: false });
    const before = workshop.registry.requests.length;
    await failureOf(load({ offline: true }), 'unsigned');
    expect(workshop.registry.requests.slice(before).some(({ path }) => path.includes('/blobs/'))).to.equal(false);
    expect((await load({ offline: true, allowUnsigned: true })).release.version).to.equal('4.12.4');
  });

  it('asks the given store and no other', async () => {
    await open();
    await failureOf(load({ store: workshop.folder }), 'unsigned');
    expect(workshop.signatures.requests).to.deep.equal([]);
  });

  it('continues without a good signature only if that is allowed, and warns', async () => {
    await open({ signed: false });
    await failureOf(load(), 'unsigned');
    expect((await load({ allowUnsigned: true })).signatures.size).to.equal(0);
    expect(context.lines.some((line) => line.startsWith('warn: no signature of'))).to.equal(true);
  });

  it('does not trust the payload about itself', async () => {
    await open();
    await failureOf(load({ fingerprints: [] }), 'untrusted');
  });

  it('refuses a release of another version or architecture than was wanted', async () => {
    await open();
    await failureOf(load({}, { version: '4.12.5' }), 'invalid-release');
    await failureOf(load({}, { arch: 's390x' }), 'invalid-release');
  });
});
