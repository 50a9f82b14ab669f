import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { metadataPath } from '../../../lib/bundle/metadata/metadata.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { openRemoteTar } from '../../../lib/bundle/open/openTar.ts';
import { verifyBundle, type VerifyReport } from '../../../lib/bundle/verify.ts';
import { Archive, type ArchiveFile } from '../../../lib/content/archive/archive.ts';
import { endSize, roundToBlock } from '../../../lib/content/archive/tarLayout.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { checkBundleDigest } from '../../../lib/node/transfer/replica.ts';
import { gatherFacts } from '../../../lib/update/record/bundleFacts.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

/** A range of a tar, and other bytes for it. */
interface Variant {
  readonly name: string;
  readonly start: number;
  readonly bytes: Buffer;
}

/** A drive that answers some reads of a range with other bytes. Counts the reads that touch the range. */
class ChangingDrive implements ArchiveFile {
  readonly size: number;
  touched = 0;
  readonly #tar: Buffer;
  readonly #changed: Buffer;
  readonly #variant: Variant;
  readonly #lies: (read: number) => boolean;

  constructor(tar: Buffer, variant: Variant, lies: (read: number) => boolean) {
    this.#tar = tar;
    this.#variant = variant;
    this.#changed = changed(tar, variant);
    this.#lies = lies;
    this.size = tar.length;
  }

  read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ bytesRead: number; buffer: Buffer }> {
    const { start, bytes } = this.#variant;
    const isTouched = position < start + bytes.length && position + length > start;
    const source = isTouched && this.#lies((this.touched += 1)) ? this.#changed : this.#tar;
    return Promise.resolve({ bytesRead: source.copy(buffer, offset, position, position + length), buffer });
  }

  pieces(): { path: string }[] {
    return [{ path: 'drive' }];
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

function changed(tar: Buffer, { start, bytes }: Variant): Buffer {
  const copy = Buffer.from(tar);
  bytes.copy(copy, start);
  return copy;
}

/** A flipped bit in the middle of a range. */
function flip(tar: Buffer, name: string, start: number, end: number): Variant[] {
  const at = Math.floor((start + end) / 2);
  return start === end ? [] : [{ name, start: at, bytes: Buffer.from([(tar[at] ?? 0) ^ 1]) }];
}

/** The header of an entry with another time, which is valid too. */
function retime(tar: Buffer, name: string, start: number): Variant {
  const bytes = Buffer.from(tar.subarray(start, start + 512));
  bytes.write('00000000007', 136, 'latin1');
  bytes.fill(' ', 148, 156);
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return { name, start, bytes };
}

/**
 * Which of a number of reads of a range, and of all later ones, are lies: one, those before it, or it and all later.
 */
function waysToLie(count: number): boolean[][] {
  const reads = Array.from({ length: count + 1 }, (_, index) => index);
  const ways = reads
    .slice(0, count)
    .flatMap((turn) => [
      reads.map((read) => read >= turn),
      reads.map((read) => read < turn),
      reads.map((read) => read === turn),
    ]);
  return [...new Map(ways.map((way) => [way.join(), way])).values()].filter((way) => way.includes(true));
}

describe('a drive that returns other bytes for the same place', () => {
  let made: TestBundle;
  let tar: Buffer;
  let variants: Variant[];
  let stable: (bytes: Buffer) => Promise<VerifyReport | undefined>;

  const options = () => ({
    trust: {
      keyrings: [made.keyFile],
      fingerprints: [made.key.fingerprint],
      allowUnsigned: false,
      fetchFile: () => Promise.reject(new Error('nothing should be fetched')),
    },
  });

  before(async () => {
    const attachments = (name: string): boolean => name === 'release';
    made = await makeBundle({ components: 1, layers: 1, baseLayers: 1, layerSize: 1500, attachments });
    tar = await readFile(made.path);
    const archive = await Archive.open(made.path, makeContext());
    const entries = [...archive.entries.values()];
    variants = entries.flatMap(({ path, start, size }, index) => {
      const before = entries[index - 1];
      const header = before ? roundToBlock(before.start + before.size) : 0;
      return [
        ...flip(tar, `the header of ${path}`, header, start),
        ...(start - header === 512 ? [retime(tar, `the time of ${path}`, header)] : []),
        ...flip(tar, `the content of ${path}`, start, start + size),
        ...flip(tar, `the padding of ${path}`, start + size, roundToBlock(start + size)),
      ];
    });
    variants.push(...flip(tar, 'the end', archive.size - endSize, archive.size));
    await archive.close();
    // metadata.json that is good in itself, with the same size.
    const position = tar.indexOf('"tool": "') + '"tool": "'.length;
    variants.push({ name: 'the tool', start: position, bytes: Buffer.from('x') });
    const reports = new Map<string, Promise<VerifyReport | undefined>>();
    stable = (bytes) => {
      const key = digestOf(bytes);
      const known = reports.get(key) ?? verifyStable(bytes);
      reports.set(key, known);
      return known;
    };
  });
  after(() => made.remove());

  const nowhere: Variant = { name: 'nothing', start: 0, bytes: Buffer.alloc(0) };
  const verifyStable = async (bytes: Buffer): Promise<VerifyReport | undefined> => {
    try {
      return await verifyDrive(new ChangingDrive(bytes, nowhere, () => false));
    } catch {
      return undefined;
    }
  };
  const verifyDrive = async (drive: ChangingDrive): Promise<VerifyReport> => {
    const context = makeContext();
    await using bundle = await openRemoteTar('drive', drive, context);
    return await verifyBundle(bundle, options(), context);
  };

  it('is good if it always returns the same', async () => {
    expect((await stable(tar))?.problems).to.deep.equal([]);
    const times = variants.filter(({ name }) => name.startsWith('the time'));
    expect(times).not.to.be.empty;
    for (const each of times) expect((await stable(changed(tar, each)))?.warnings).to.have.length(1);
    const other = variants.at(-1) ?? nowhere;
    expect((await stable(changed(tar, other)))?.problems).to.deep.equal([]);
  });

  it('never gets a verdict that the hashed bytes do not have', async () => {
    let caught = 0;
    for (const variant of variants) {
      const counting = new ChangingDrive(tar, variant, () => false);
      await verifyDrive(counting);
      const candidates = new Map([tar, changed(tar, variant)].map((bytes) => [digestOf(bytes) as string, bytes]));
      for (const lies of waysToLie(counting.touched)) {
        const drive = new ChangingDrive(tar, variant, (read) => lies[Math.min(read, lies.length) - 1] ?? false);
        const report = await verifyDrive(drive).catch(() => undefined);
        if (!report || report.problems.length > 0) {
          caught += 1;
          continue;
        }
        const bytes = candidates.get(report.digest ?? '');
        const where = `${variant.name}, lies ${lies.join()}`;
        expect(bytes, where).not.to.equal(undefined);
        if (bytes) expect(report, where).to.deep.equal(await stable(bytes));
      }
    }
    expect(caught).to.be.greaterThan(variants.length);
  });

  it('never gives an agent facts that are not those of the allowed digest', async () => {
    const digest = digestOf(tar);
    const tool = variants.at(-1) ?? nowhere;
    const judge = async (variant: Variant, lies: (read: number) => boolean, index: number): Promise<unknown> => {
      const context = makeContext();
      await using bundle = await openRemoteTar('drive', new ChangingDrive(tar, variant, lies), context);
      await checkBundleDigest(bundle, digest, context);
      const facts = await gatherFacts(bundle, digest, join(made.folder, `facts-${index}`), options().trust, context);
      return { files: bundle.files, facts };
    };
    const genuine = await judge(nowhere, () => false, 0);
    for (const [index, variant] of variants.entries())
      for (const turn of [1, 2, 3]) {
        const first = await judge(variant, (read) => read <= turn, index).catch(() => genuine);
        expect(first, variant.name).to.deep.equal(genuine);
        const later = await judge(variant, (read) => read > turn, index).catch(() => genuine);
        expect(later, variant.name).to.deep.equal(genuine);
      }
    // It is listed with one metadata.json, and hashed with the other.
    const bundle = openRemoteTar('drive', new ChangingDrive(tar, tool, (read) => read <= 2), makeContext());
    const { message, hint } = await failureOf(
      bundle.then((opened) => checkBundleDigest(opened, digest, makeContext())),
      'digest-mismatch',
    );
    expect(message).to.equal('drive returned other bytes for metadata.json when they were read again');
    expect(hint).to.match(/drive is faulty/);
  });

  it('never gets a verdict for a mirror directory whose metadata.json was replaced', async () => {
    const folder = await made.unpack();
    const context = makeContext();
    await using bundle = await openBundle(folder, context);
    const text = await readFile(join(folder, metadataPath), 'utf8');
    await writeFile(join(folder, metadataPath), text.replace('"tool": "', '"tool": "x'));
    const { message } = await failureOf(verifyBundle(bundle, options(), context), 'digest-mismatch');
    expect(message).to.include(`other bytes for ${metadataPath}`);
  });
});
