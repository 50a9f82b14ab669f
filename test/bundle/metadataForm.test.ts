import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { expect } from 'chai';
import {
  encodeMetadata,
  metadataPath,
  metadataSchema,
  metadataSizeLimit,
  parseMetadata,
  type BundleMetadata,
} from '../../lib/bundle/metadata/metadata.ts';
import type { Bundle } from '../../lib/bundle/open/bundle.ts';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { checkSigned } from '../../lib/bundle/open/signedBundle.ts';
import { isPluginError } from '../../lib/errors.ts';
import type { Schema } from '../../lib/schema.ts';
import { repack } from '../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { listValues, MetadataMutations } from '../support/content/metadataMutations.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { claimedValues, readMetadataTable } from '../support/project/metadataTable.ts';
import { extraImage } from '../support/release/extraImage.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const claims = claimedValues();
/** One layer of each image, and one that all share. */
const small = { layers: 1, baseLayers: 1 };
const risks = [{ name: 'SlowDisks', message: 'Disks are “slow”.', url: 'https://example.com/?a=1&b=2' }];

/** Lists the paths of all values, such as `blobs[].digest`; `*` is any key of a mapping. */
function pathsOf({ items, properties, additionalProperties }: Schema): string[] {
  if (items) return pathsOf(items).map((path) => `[]${path}`);
  if (additionalProperties) return pathsOf(additionalProperties).map((path) => `.*${path}`);
  if (!properties) return [''];
  return Object.entries(properties).flatMap(([key, each]) => pathsOf(each).map((path) => `.${key}${path}`));
}

describe('metadata.json of each kind of bundle', () => {
  const made: TestBundle[] = [];
  const opened = new Map<string, Bundle>();
  const keep = async (kind: string, bundle: TestBundle, path = bundle.path): Promise<TestBundle> => {
    made.push(bundle);
    opened.set(kind, await openBundle(path, makeContext()));
    return bundle;
  };
  before(async () => {
    const extraImages = [extraImage(), extraImage({ seed: 'other', repository: 'example/other' })];
    const usual = await keep('a usual one', await makeBundle({ ...small, extraImages }));
    const risky = await makeBundle({ ...small, seed: 'risky', version: '4.12.5' });
    await keep('one with risks', risky, await repack(risky.path, join(risky.folder, 'risky.tar'), addRisks));
    await keep(
      'several releases',
      await makeBundle({ ...small, earlier: [{ version: '4.12.3', seed: 'first' }], extraImages }),
    );
    await keep('a delta', await makeBundle({ ...small, version: '4.12.6', extraImages, base: usual.path }));
    await keep('volumes', await makeBundle({ ...small, seed: 'volumes', volumeSize: 50_000 }));
    await keep('several architectures', await makeBundle({ ...small, arch: 'multi' }));
  });
  after(async () => {
    for (const bundle of opened.values()) await bundle[Symbol.asyncDispose]();
    for (const bundle of made) await bundle.remove();
  });
  const each = function* (): Generator<readonly [string, Bundle, Buffer]> {
    for (const [kind, bundle] of opened) yield [kind, bundle, encodeMetadata(bundle.metadata)];
  };
  /** The bytes of a usual bundle. */
  const usual = (): Buffer => {
    for (const [, , bytes] of each()) return bytes;
    throw new Error('there is no bundle');
  };
  const accepts = (bytes: Buffer): BundleMetadata | undefined => {
    try {
      return parseMetadata(bytes, 'x.tar');
    } catch (error) {
      if (isPluginError(error, 'invalid-bundle')) return undefined;
      throw error;
    }
  };
  const check = (bundle: Bundle): ReturnType<typeof checkSigned> => {
    const [{ keyFile, key } = { keyFile: '', key: { fingerprint: '' } }] = made;
    const trust = { keyrings: [keyFile], fingerprints: [key.fingerprint], allowUnsigned: false };
    return checkSigned(bundle, { ...trust, fetchFile: () => Promise.resolve(undefined) }, makeContext());
  };

  it('is written and read in one form', async () => {
    for (const [kind, bundle, bytes] of each()) {
      expect((await bundle.read(metadataPath)).equals(bytes), kind).to.equal(true);
      expect(parseMetadata(bytes, kind), kind).to.deep.equal(bundle.metadata);
      expect((await check(bundle)).release.version, kind).to.equal(bundle.metadata.version);
    }
  });

  it('is refused in any other form, at any depth', () => {
    const spellings: Record<string, (text: string) => string> = {
      'without spaces': (text) => JSON.stringify(JSON.parse(text)),
      'another indent': (text) => `${JSON.stringify(JSON.parse(text), null, 4)}\n`,
      'no line feed at the end': (text) => text.trimEnd(),
      'a second line feed': (text) => `${text}\n`,
      'a byte order mark': (text) => `\ufeff${text}`,
      'carriage returns': (text) => text.replaceAll('\n', '\r\n'),
      'an escaped letter': (text) => text.replace('"version"', String.raw`"\u0076ersion"`),
      'an escaped slash': (text) => text.replace('/', String.raw`\/`),
      'a number with a fraction': (text) => text.replace(/"size": (\d+)/, '"size": $1.0'),
      'a number with an exponent': (text) => text.replace(/"size": (\d+)/, '"size": $1e0'),
      'a negative zero': (text) => text.replace('"formatVersion": ', '"formatVersion": -0e9'),
      'an unknown key': (text) => text.replace('{\n', '{\n  "extra": 1,\n'),
      'a key in another case': (text) => text.replace('  "release":', '  "Release": "evil",\n  "release":'),
      'a key twice': (text) => text.replace(/ {2}"arch": .*\n/, '$&$&'),
      'a key twice, the first one other': (text) => text.replace(/ {2}"arch": .*\n/, '  "arch": "s390x",\n$&'),
      'a key of all objects': (text) => text.replace('{\n', '{\n  "__proto__": { "tool": "evil" },\n'),
      'two keys in another order': (text) => text.replace(/( {2}"version": .*\n)( {2}"arch": .*\n)/, '$2$1'),
      'an unknown key in a blob': (text) => text.replace('"digest"', '"mediaType": "x",\n      "digest"'),
      'a digest twice in a blob': (text) => text.replace(/ {6}"digest": .*\n/, '$&$&'),
      'an unknown key of a signer': (text) => text.replace('"signer"', '"trusted": true,\n        "signer"'),
    };
    for (const [kind, , bytes] of each())
      for (const [how, respell] of Object.entries(spellings)) {
        const text = respell(bytes.toString());
        expect(text, `${how}, ${kind}`).not.to.equal(bytes.toString());
        expect(accepts(Buffer.from(text)), `${how}, ${kind}`).to.equal(undefined);
      }
    for (const [kind, , bytes] of each()) {
      const noText = Buffer.from(bytes);
      noText.set([0xff], bytes.indexOf('test/1'));
      expect(accepts(noText), kind).to.equal(undefined);
    }
  });

  it('is refused with the line of the first difference', async () => {
    const bytes = usual();
    const text = bytes.toString().replace('  "release":', '  "Release": "evil",\n  "release":');
    const error = await failureOf(
      new Promise((resolve) => void resolve(parseMetadata(Buffer.from(text), 'x.tar'))),
      'invalid-bundle',
    );
    expect(error.message).to.equal(
      'metadata.json in x.tar is not in the form that create writes: from line 5 on it has unknown or repeated ' +
        'keys, or another order or spelling',
    );
  });

  it('is refused within two seconds at its largest size', () => {
    const bytes = usual();
    const fill = (part: (index: number) => string): Buffer => {
      const count = Math.floor((metadataSizeLimit - bytes.length) / part(1_000_000).length);
      const parts = Array.from({ length: count }, (_, index) => part(index));
      return Buffer.from(bytes.toString().replace('{\n', `{\n${parts.join('')}`));
    };
    for (const part of [
      (index: number) => `"k${index}": 1,\n`,
      () => '"version": "4.1.1",\n',
      () => '"blobs": [],\n',
    ]) {
      const begin = process.cpuUsage();
      expect(accepts(fill(part))).to.equal(undefined);
      // The time of the processor, because a busy machine takes longer.
      expect(process.cpuUsage(begin).user).to.be.below(10_000_000);
    }
  });

  it('has a row in docs/trust.md for each of its values, with functions that exist', () => {
    const rows = readMetadataTable();
    const metadataValues = pathsOf(metadataSchema).map((path) => path.slice(1));
    expect(rows.flatMap(({ values }) => values).sort()).to.deep.equal(metadataValues.sort());
    const kinds = [...opened.values()].flatMap(({ metadata }) => listValues(metadata).map(({ kind }) => kind));
    expect(metadataValues, 'values of bundles').to.include.members(kinds);
    const sources = globSync('lib/**/*.ts', { cwd: root }).map((path) => readFileSync(join(root, path), 'utf8'));
    for (const { values, proof, functions } of rows) {
      expect(['signed', 'recomputed', 'claim'], values.join()).to.include(proof);
      expect(functions, values.join()).not.to.deep.equal([]);
      for (const name of functions)
        expect(sources.filter((text) => text.includes(`function ${name}(`)).length, name).to.equal(1);
    }
  });

  /**
   * Returns why changed metadata of a bundle does not count: its form, or what is signed. Otherwise, whether they
   * differ in claims only. Volumes are compared with their files when a bundle is opened, which this does not repeat.
   */
  const judge = async (bundle: Bundle, changed: Buffer): Promise<Verdict> => {
    const metadata = accepts(changed);
    if (!metadata) return 'malformed';
    try {
      await check({ ...bundle, metadata });
    } catch (error) {
      if (isPluginError(error)) return 'contradicted';
      throw error;
    }
    const [before, after] = [bundle.metadata, metadata].map((each) =>
      listValues(each).filter(({ kind }) => !claims.has(kind) && !kind.startsWith('volumes[]')),
    );
    return isDeepStrictEqual(after, before) ? 'claims' : 'another meaning';
  };
  // MUTATIONS=100000 runs the campaign.
  it('has its signed meaning or is refused after any mutation', async function () {
    this.timeout(0);
    const count = Number(process.env['MUTATIONS'] ?? 1000);
    const seed = Number(process.env['MUTATION_SEED'] ?? 1);
    const tally = { malformed: 0, contradicted: 0, claims: 0 };
    const bundles = [...each()];
    const mutations = new MetadataMutations(seed);
    for (let index = 0; index < count; index += 1) {
      const [kind, bundle, bytes] = bundles[index % bundles.length] ?? expect.fail('there is no bundle');
      let mutated = mutations.mutate(bytes);
      while (mutated.equals(bytes)) mutated = mutations.mutate(bytes);
      const verdict = await judge(bundle, mutated);
      if (verdict === 'another meaning')
        expect.fail(`mutation ${index} of seed ${seed}, ${kind}: ${mutations.described}`);
      tally[verdict] += 1;
    }
    if (process.env['MUTATIONS'] !== undefined) process.stderr.write(`${JSON.stringify(tally)}\n`);
    expect(tally.malformed).to.be.above(count / 10);
    expect(tally.contradicted).to.be.above(count / 20);
    expect(tally.claims).to.be.above(count / 100);
  });
});

type Verdict = 'malformed' | 'contradicted' | 'claims' | 'another meaning';

function addRisks(unpacked: { metadata: BundleMetadata }): void {
  unpacked.metadata = { ...unpacked.metadata, risks };
}
