import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { Overlay } from '../../../lib/content/store/derivedImage.ts';
import { isDamage, readContent, readImageManifest, Verifier, verifyStream } from '../../../lib/content/store/store.ts';
import { PluginError } from '../../../lib/errors.ts';
import { failureOf } from '../../support/program/failure.ts';

const bytes = Buffer.from('0123456789');
const descriptor: Descriptor = { mediaType: 'text/plain', digest: digestOf(bytes), size: bytes.length };

describe('verifyStream', () => {
  const verify = (parts: readonly (string | Buffer)[], start = 0): Readable =>
    verifyStream(Readable.from(parts.map((part) => Buffer.from(part))), descriptor, 'the store', start);

  it('passes on right content, however it comes', async () => {
    for (const parts of [[bytes], ['0123', '', '456789'], bytes.toString().split('')])
      expect((await buffer(verify(parts))).equals(bytes)).to.equal(true);
  });

  it('fails with the wrong size or digest', async () => {
    const { digest } = descriptor;
    for (const [parts, code, message] of [
      [['012345678'], 'size-mismatch', `the store: ${digest} has 9 bytes, fewer than the 10 bytes it should have`],
      [[], 'size-mismatch', `the store: ${digest} has 0 bytes, fewer than the 10 bytes it should have`],
      [[bytes, 'x'], 'size-mismatch', `the store: ${digest} has more than the 10 bytes it should have`],
      [
        ['012345678x'],
        'digest-mismatch',
        `the store: the content of ${digest} is corrupt (its digest is ${digestOf('012345678x')})`,
      ],
    ] as const) {
      expect((await failureOf(buffer(verify(parts)), code)).message).to.equal(message);
    }
  });

  it('passes on no last byte of corrupt content', async () => {
    const passed: string[] = [];
    const source = Readable.from(
      (async function* () {
        yield* [Buffer.from('01234'), Buffer.from('5678x')];
        // The end comes later than the last byte.
        await setImmediate();
      })(),
    );
    const reading = (async () => {
      for await (const chunk of verifyStream(source, descriptor, 'the store')) passed.push(String(chunk));
    })();
    await failureOf(reading, 'digest-mismatch');
    expect(passed.join('')).not.to.contain('x');
  });

  it('checks only the size if it starts after the first byte', async () => {
    expect((await buffer(verify(['xyz'], 7))).toString()).to.equal('xyz');
    await failureOf(buffer(verify(['xy'], 7)), 'size-mismatch');
    await failureOf(buffer(verify(['wxyz'], 7)), 'size-mismatch');
  });

  it('fails with the error of its source', async () => {
    const broken = new PluginError('unreachable', 'the connection ended');
    const source = Readable.from(
      (async function* () {
        yield bytes.subarray(0, 3);
        await Promise.reject(broken);
      })(),
    );
    expect(await failureOf(buffer(verifyStream(source, descriptor, 'the store')), 'unreachable')).to.equal(broken);
  });
});

describe('Verifier', () => {
  it('says whether the bytes match, without an error', () => {
    const matches = (text: string, start = 0): boolean => {
      const verifier = new Verifier(descriptor, 'the store', start);
      verifier.update(Buffer.from(text));
      expect(verifier.length).to.equal(start + text.length);
      return verifier.matches();
    };
    expect(matches('0123456789')).to.equal(true);
    expect(matches('012345678x')).to.equal(false);
    expect(matches('012345678')).to.equal(false);
    expect([matches('xyz', 7), matches('xy', 7)]).to.deep.equal([true, false]);
  });
});

describe('readContent', () => {
  const source = new Overlay('the store', undefined, new Map([[descriptor.digest, bytes]]));

  it('reads content up to a limit, and nothing above it', async () => {
    expect((await readContent(source, descriptor, 10)).equals(bytes)).to.equal(true);
    const { message } = await failureOf(readContent(source, descriptor, 9), 'too-large');
    expect(message).to.equal(`${descriptor.digest} in the store has 10 bytes, more than the limit of 9`);
    await failureOf(readContent(source, { ...descriptor, size: 4 * 1024 * 1024 + 1 }), 'too-large');
  });

  it('names the manifest and the store if it is not a manifest', async () => {
    const { message } = await failureOf(readImageManifest(source, descriptor), 'invalid-manifest');
    expect(message).to.equal(`${descriptor.digest} in the store is not JSON`);
  });
});

describe('isDamage', () => {
  it('is true for corrupt content and for a file that cannot be read', () => {
    const codes = ['digest-mismatch', 'size-mismatch', 'not-readable', 'not-found', 'unreachable'] as const;
    expect(codes.filter((code) => isDamage(new PluginError(code, 'x')))).to.deep.equal(codes.slice(0, 3));
    expect(isDamage(new Error('EIO'))).to.equal(false);
  });
});
