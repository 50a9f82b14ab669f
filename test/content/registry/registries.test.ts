import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { formatReference, parseReference } from '../../../lib/content/oci/reference.ts';
import { MirrorSets } from '../../../lib/content/registry/mirrors.ts';
import { Registries } from '../../../lib/content/registry/registries.ts';
import { DestinationError } from '../../../lib/content/registry/relay.ts';
import type { RegistrySettings } from '../../../lib/content/registry/session.ts';
import type { ContentSource } from '../../../lib/content/store/store.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { makeAuthority } from '../../support/certificates.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeNoiseLayer } from '../../support/content/layers.ts';
import { addBlob, Places } from '../../support/content/places.ts';
import { localAccess } from '../../support/content/provider.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentTag } from '../../support/release/attachments.ts';

/** A rule for mirrors, as MirrorSets takes it. */
type Rule = NonNullable<ConstructorParameters<typeof MirrorSets>[0]>[number];

describe('Registries', () => {
  let context: TestContext;
  let mirror: TestRegistry;
  let original: TestRegistry;
  let registries: Registries;
  beforeEach(async () => {
    context = makeContext();
    mirror = await startRegistry();
    original = await startRegistry();
  });
  afterEach(async () => {
    await registries[Symbol.asyncDispose]();
    await Promise.all([mirror.stop(), original.stop()]);
  });

  /** Opens registries with rules: a mirror of `original`/app, each time changed. */
  const open = (changes: readonly Partial<Rule>[], settings: Partial<RegistrySettings> = {}): void => {
    const rule = { source: `${original.host}/app`, mirrors: [`${mirror.host}/copy`], contactSource: true };
    const mirrors = new MirrorSets(changes.map((change): Rule => ({ ...rule, pulls: 'digest', ...change })));
    const access = { ...localAccess, settings: { ...localAccess.settings, ...settings }, mirrors };
    registries = new Registries(access, context);
  };
  const contents = new TestContent();
  const image = contents.addImage('copy', { architecture: 'amd64', layers: [makeNoiseLayer('a', 10)] }, '1.0');
  contents.addImage('app', { architecture: 'amd64', layers: [makeNoiseLayer('a', 10)] }, '1.0');
  const named = (suffix: string): ReturnType<typeof parseReference> => parseReference(`${original.host}/app${suffix}`);

  it('reads an image from its mirror, and from the original if the mirror lacks it', async () => {
    contents.addTo(mirror.content);
    contents.addTo(original.content);
    open([{}]);
    const find = (): ContentSource => registries.sourceOf(named(`@${image.digest}`));
    expect(find().name).to.equal(`${original.host}/app`);
    expect((await find().resolve(image.digest)).digest).to.equal(image.digest);
    expect(original.requests).to.deep.equal([]);
    mirror.content.repositories.clear();
    expect((await buffer(await find().fetch(image))).length).to.equal(image.size);
    expect(original.requests).not.to.be.empty;
  });

  it('uses mirrors for digests also for tags, after those for tags', async () => {
    contents.addTo(mirror.content);
    open([{}, { pulls: 'tag', mirrors: [`${mirror.host}/tags`] }]);
    expect((await registries.sourceOf(named(':1.0')).resolve('1.0')).digest).to.equal(image.digest);
    const asked = mirror.requests.filter(({ path }) => path.includes('manifests')).map(({ path }) => path);
    expect(asked).to.deep.equal(['/v2/tags/manifests/1.0', '/v2/copy/manifests/1.0']);
  });

  it('does not use mirrors for tags for an image that is named by digest alone', async () => {
    open([{ pulls: 'tag' }]);
    const source = registries.sourceOf(named(`@${image.digest}`));
    await failureOf(source.resolve(image.digest), 'not-found');
    expect(mirror.requests).to.deep.equal([]);
  });

  it('refuses an image that must not be contacted and has no mirror', async () => {
    open([{ mirrors: [], contactSource: false }]);
    const { message, hint } = await failureOf(
      Promise.resolve().then(() => registries.sourceOf(named(`@${image.digest}`))),
      'not-found',
    );
    expect(message).to.equal(
      `${formatReference(named(`@${image.digest}`))} must not be pulled from its own registry, and has no mirror`,
    );
    expect(hint).to.equal('The mirror sets have NeverContactSource for it: add a mirror there.');
  });

  it('warns once for each repository whose content counts as missing because it cannot be reached', async () => {
    await using authority = await makeAuthority();
    const { certificate: cert, key } = await authority.issue();
    await using secure = await startRegistry({ tls: { cert, key } });
    open([{ mirrors: [`${secure.host}/copy`] }], { insecure: false, certificateAuthority: authority.certificateFile });
    // The original speaks no TLS.
    for (const _ of [1, 2]) {
      const source = registries.sourceOf(named(`@${image.digest}`));
      await failureOf(source.resolve(attachmentTag(image.digest)), 'not-found');
    }
    const warnings = context.lines.filter((line) => line.startsWith('warn: '));
    expect(warnings).to.have.length(1);
    expect(warnings[0]).to.match(
      new RegExp(`^warn: sigstore signatures .* mirrors of ${original.host}/app lack are treated as missing, because`),
    );
  });

  it('leads from a mirror to the original, preferably to a given one', () => {
    open([{ source: 'quay.io/one' }, { source: 'quay.io/two' }]);
    const copy = parseReference(`${mirror.host}/copy/x@${image.digest}`);
    const originalOf = (preferred?: string): string => formatReference(registries.originalOf(copy, preferred));
    expect(originalOf()).to.equal(`quay.io/one/x@${image.digest}`);
    expect(originalOf('quay.io/two/x')).to.equal(`quay.io/two/x@${image.digest}`);
    expect(originalOf('quay.io/two')).to.equal(`quay.io/one/x@${image.digest}`);
    const other = parseReference('quay.io/other:1');
    expect(registries.originalOf(other)).to.equal(other);
  });

  it('downloads content from a mirror into its place, and copies it into a repository', async () => {
    const { descriptor, bytes } = addBlob(mirror.content, 'blob', 50_000);
    open([{}]);
    const references = [named(`@${descriptor.digest}`), named(`/below@${descriptor.digest}`)];
    const places = await Places.make();
    try {
      const place = await places.next(descriptor.size);
      await registries.download(descriptor, references, place, () => undefined);
      expect((await places.read(place, descriptor.size)).equals(bytes)).to.equal(true);
    } finally {
      await places.remove();
    }
    await using site = await startRegistry();
    const destination = { registry: site.host, repository: 'site' };
    await registries.download(descriptor, references, destination, () => undefined);
    expect(site.content.blobs.get(descriptor.digest)).to.deep.equal(bytes);
    expect(original.requests).to.deep.equal([]);
    site.fault(/./, { answer: { status: 403 } });
    const { descriptor: next } = addBlob(mirror.content, 'next', 50_000);
    const refused = registries.download(next, references, destination, () => undefined);
    expect(await refused.catch((error: unknown) => error)).to.be.instanceOf(DestinationError);
  });

  it('gets files that are not in a registry', async () => {
    open([]);
    original.fault(/signature-1/, { answer: { status: 200, body: 'signed' } });
    const url = (name: string): URL => new URL(`${original.url}/${name}`);
    expect((await registries.fetchFile(url('signature-1'), 100))?.toString()).to.equal('signed');
    expect(await registries.fetchFile(url('signature-2'), 100)).to.equal(undefined);
    await failureOf(registries.fetchFile(url('signature-1'), 5), 'too-large');
  });
});
