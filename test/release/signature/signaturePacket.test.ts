import { createPrivateKey } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateRawSync, deflateSync } from 'node:zlib';
import { expect } from 'chai';
import { createMessage, generateKey, sign, type Key, type PrivateKey, type PublicKey } from 'openpgp';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { readKeys } from '../../../lib/release/signature/keyring.ts';
import { verifySignature } from '../../../lib/release/signature/signature.ts';
import { requirePeer, run, runSuccessfully } from '../../support/peers.ts';
import {
  joinParts,
  number,
  packet,
  partialPacket,
  signParts,
  subpacket,
  type MessageParts,
  type SignedMessageOptions,
} from '../../support/release/signedMessage.ts';
import { makeSigningKey, statementOf, type SigningKey } from '../../support/release/signing.ts';

const digest = digestOf('a release');

// Created by gpg with --compress-algo bzip2, and the ECDSA key for it.
const bzip2Key =
  'mFIEYc+ZgBMIKoZIzj0DAQcCAwSQ7ncFRo4ZKjZ6/RdXlTfiaZLB7vZ/55AGJ+cWATOofgpkcvHAVG2v+KanjABIIullA5fMnb0rWrcBk3q5jj97tARwMjU2iJAEExMIADgWIQQaftB6wEhiaqGuyF9aWCMEogs9cgUCYc+ZgAIbAwULCQgHAgYVCgkICwIEFgIDAQIeAQIXgAAKCRBaWCMEogs9cjduAQCpQvvK4ZcKjZD6LcScSTfY7U3wr8T9ZCEMyqe8J4UEOQEA5Q3iufmjdBvdcJh7OIunYnW12U4TRfbir/nu+fsQY2k=';
const bzip2Message =
  'owNCWmg2MUFZJlNZKIDG4QAAzv///ntJlvof//KEQ0xwv///eyNDQwEy12TQVEjFJAMQYBEwASVEIhNKeUYxRpk9TTamg9QADQB6E0B6hoZAaaekNpANNNNNom0GoRTGppo0NT1J5TQMhoANAaAAAAA0AD1AAAAADgAAAAAAAAAAAAAAAAAAAAHmUhpxTU2PSQFt2lJgniuHyF5GIyLxtPyvcGm/TNo76PXCXMAYGdMkyWRYJgBoDGQBgtsSFxQ2rmGwMbxFIBpOgWu5ktKPuRou6hATeR8TF0kJKYClebeaQV1K3meBI0hB/hNqClT6zNC+gJhA3pwi2iCggGUgBFFXiVGvylPPmC6Fk10Ks1S+GrOy2cYhiYESIbvdpimI5s3rkVPYFlvR5gTiLDHgcO3sRyNBNmoi5I0YbYbsEWtwViEiZMqQHGEnhWU56gkM+EBGFgd+F6W2cBZRdFWSikB2HDnUCqMpZTJIBEomEgCoN90yTKH5gZwHAPF+EdASBXtRmDFZUCKCqA4BzX4oJpAGc9PhFKIpaHw+dIkOHPot5POMS7sNEkqcz9WP3uOoe7BlnOBKkwLHp1aWZUCS05wL2K2z1Sm6zVdua3bV5LVnictW3IDipf8XckU4UJAogMbh';

/**
 * A message, the change from a good one, and the expected verdict. The title states where clusters or gpg accept more.
 */
interface Form {
  readonly title: string;
  readonly make: (forms: Forms) => Buffer;
  readonly expected: 'good' | RegExp;
}

/** The parts to create the forms from. */
interface Forms {
  readonly parts: (options?: Partial<SignedMessageOptions>, data?: Buffer) => MessageParts;
}

const edit = (bytes: Buffer, at: number, value: number): Buffer => {
  const copy = Buffer.from(bytes);
  copy[at < 0 ? bytes.length + at : at] = value;
  return copy;
};
const compressed = (algorithm: number, content: Buffer): Buffer =>
  packet(8, Buffer.concat([Buffer.from([algorithm]), content]));
const marker = packet(10, Buffer.from('PGP'));
const statement = Buffer.from(statementOf(digest));

const forms: Form[] = [
  { title: 'version 4', make: ({ parts }) => joinParts(parts()), expected: 'good' },
  { title: 'version 3', make: ({ parts }) => joinParts(parts({ version: 3 })), expected: 'good' },
  { title: 'SHA-384', make: ({ parts }) => joinParts(parts({ hash: 9 })), expected: 'good' },
  { title: 'SHA-512', make: ({ parts }) => joinParts(parts({ hash: 10 })), expected: 'good' },
  {
    title: 'a document in partial lengths',
    make: ({ parts }) => {
      const { onePass, literal, signature } = parts(
        {},
        Buffer.from(statementOf(digest, { creator: 'x'.repeat(2000) })),
      );
      return Buffer.concat([packet(4, onePass), partialPacket(11, literal), packet(2, signature)]);
    },
    expected: 'good',
  },
  {
    title: 'ZIP',
    make: ({ parts }) => compressed(1, deflateRawSync(joinParts(parts()))),
    expected: 'good',
  },
  {
    title: 'ZLIB',
    make: ({ parts }) => compressed(2, deflateSync(joinParts(parts()))),
    expected: 'good',
  },
  {
    title: 'a marker packet in front',
    make: ({ parts }) => Buffer.concat([marker, joinParts(parts())]),
    expected: 'good',
  },
  {
    title: 'a signature that expires in the far future',
    make: ({ parts }) => joinParts(parts({ lifetime: 2_000_000_000 })),
    expected: 'good',
  },
  {
    title: 'a signature that expired',
    make: ({ parts }) => joinParts(parts({ lifetime: 86_400 })),
    expected: /^expired on 2023-02-01T00:00:00\.000Z$/,
  },
  {
    title: 'a lifetime of 0, which is over at once for clusters',
    make: ({ parts }) => joinParts(parts({ lifetime: 0 })),
    expected: /^expired on 2023-01-31/,
  },
  {
    title: 'SHA-1, which clusters accept',
    make: ({ parts }) => joinParts(parts({ hash: 2 })),
    expected: /^uses a hash weaker than SHA-256 \(SHA-1\)$/,
  },
  {
    title: 'SHA-224, which clusters accept',
    make: ({ parts }) => joinParts(parts({ hash: 11 })),
    expected: /weaker than SHA-256 \(SHA-224\)/,
  },
  {
    title: 'SHA3-256',
    make: ({ parts }) => joinParts(parts({ hash: 12 })),
    expected: /unsupported algorithm.*SHA3-256/,
  },
  {
    title: 'a signature of a text document, which clusters accept',
    make: ({ parts }) => joinParts(parts({ type: 1 })),
    expected: /^is not one of a binary document$/,
  },
  {
    title: 'an ASCII-armored message',
    make: ({ parts }) => Buffer.from(`-----BEGIN PGP MESSAGE-----\n\n${joinParts(parts()).toString('base64')}`),
    expected: /^is ASCII-armored/,
  },
  {
    title: 'a one-pass packet of another type',
    make: ({ parts }) => joinParts({ ...parts(), onePass: edit(parts().onePass, 1, 1) }),
    expected: /^differs from its one-pass packet/,
  },
  {
    title: 'a one-pass packet with another hash',
    make: ({ parts }) => joinParts({ ...parts(), onePass: edit(parts().onePass, 2, 10) }),
    expected: /^differs from its one-pass packet/,
  },
  {
    title: 'a one-pass packet with another key',
    make: ({ parts }) => joinParts({ ...parts(), onePass: edit(parts().onePass, 5, parts().onePass.readUInt8(5) ^ 1) }),
    expected: /^differs from its one-pass packet/,
  },
  {
    title: 'a one-pass packet that announces another one',
    make: ({ parts }) => joinParts({ ...parts(), onePass: edit(parts().onePass, 12, 0) }),
    expected: /^is nested/,
  },
  {
    title: 'a one-pass packet of version 6',
    make: ({ parts }) => joinParts({ ...parts(), onePass: edit(parts().onePass, 0, 6) }),
    expected: /^uses an unsupported algorithm.*one-pass packet of version 6/,
  },
  {
    title: 'nested signatures',
    make: ({ parts }) => {
      const { onePass, literal, signature } = parts();
      const outer = packet(4, edit(onePass, 12, 0));
      return Buffer.concat([
        outer,
        packet(4, onePass),
        packet(11, literal),
        packet(2, signature),
        packet(2, signature),
      ]);
    },
    expected: /^holds several signatures/,
  },
  {
    title: 'no one-pass packet',
    make: ({ parts }) => Buffer.concat([packet(2, parts().signature), packet(11, parts().literal)]),
    expected: /^lacks the one-pass packet/,
  },
  {
    title: 'a detached signature',
    make: ({ parts }) => packet(2, parts().signature),
    expected: /^is detached: it holds no statement$/,
  },
  {
    title: 'no signature',
    make: ({ parts }) => packet(11, parts().literal),
    expected: /^is not a signed message$/,
  },
  {
    title: 'a second document',
    make: ({ parts }) => Buffer.concat([packet(11, parts().literal), joinParts(parts())]),
    expected: /^holds 2 documents instead of one$/,
  },
  {
    title: 'trailing bytes, which clusters do not read',
    make: ({ parts }) => Buffer.concat([joinParts(parts()), Buffer.from('more')]),
    expected: /^has trailing data$/,
  },
  {
    title: 'a packet of an unknown type, which all others skip',
    make: ({ parts }) => Buffer.concat([packet(15, Buffer.alloc(3)), joinParts(parts())]),
    expected: /^holds a packet of type 15$/,
  },
  {
    title: 'an encrypted message',
    make: () => packet(9, Buffer.alloc(40)),
    expected: /^is encrypted$/,
  },
  {
    title: 'a hash tag that differs, version 4',
    make: ({ parts }) => {
      const { signature } = parts();
      return joinParts({
        ...parts(),
        signature: edit(signature, -259, signature.readUInt8(signature.length - 259) ^ 1),
      });
    },
    expected: /^does not match its statement: the hash tag differs$/,
  },
  {
    title: 'a hash tag that differs, version 3',
    make: ({ parts }) => {
      const message = parts({ version: 3 });
      return joinParts({ ...message, signature: edit(message.signature, 17, message.signature.readUInt8(17) ^ 1) });
    },
    expected: /the hash tag differs/,
  },
  {
    title: 'a version 3 packet with a number that says it is longer',
    make: ({ parts }) => {
      const message = parts({ version: 3 });
      return joinParts({ ...message, signature: edit(message.signature, 19, 9) });
    },
    expected: /^has a number of a wrong length$/,
  },
  {
    title: 'a number that is followed by another one',
    make: ({ parts }) =>
      joinParts({ ...parts(), signature: Buffer.concat([parts().signature, Buffer.from([0, 1, 1])]) }),
    expected: /^has a number of a wrong length$/,
  },
  {
    title: 'an corrupt number',
    make: ({ parts }) =>
      joinParts({ ...parts(), signature: edit(parts().signature, -1, ~(parts().signature.at(-1) ?? 0) & 0xff) }),
    expected: /^is not genuine/,
  },
  {
    title: 'a version 3 packet with a hashed part of another length',
    make: ({ parts }) => joinParts({ ...parts(), signature: edit(parts({ version: 3 }).signature, 1, 6) }),
    expected: /^is malformed$/,
  },
  {
    title: 'an unknown critical subpacket',
    make: ({ parts }) => joinParts(parts({ hashed: [subpacket(0x80 | 100, Buffer.from('x'))] })),
    expected: /^has an unknown critical subpacket \(type 100\)$/,
  },
  {
    title: 'an unknown subpacket that is not critical',
    make: ({ parts }) => joinParts(parts({ hashed: [subpacket(100, Buffer.from('x'))] })),
    expected: 'good',
  },
  {
    title: 'a second creation time',
    make: ({ parts }) => joinParts(parts({ hashed: [subpacket(2, number(1_700_000_000, 4))] })),
    expected: /^has a subpacket twice \(type 2\)$/,
  },
  {
    title: 'a creation time that is not signed',
    make: ({ parts }) => joinParts(parts({ unhashed: [subpacket(2, number(1_700_000_000, 4))] })),
    expected: /^has a creation time that is not signed$/,
  },
  {
    title: 'a subpacket that is cut short',
    make: ({ parts }) => joinParts(parts({ hashed: [Buffer.from([9, 100, 1])] })),
    expected: /^has a subpacket that is cut short$/,
  },
  {
    title: 'a signature from before the key',
    make: ({ parts }) => joinParts(parts({ date: new Date('2022-01-01') })),
    expected: /which cannot be used: it is younger than the signature$/,
  },
  {
    title: 'a signature packet in partial lengths',
    make: ({ parts }) => {
      const { onePass, literal, signature } = parts({
        hashed: [subpacket(100, Buffer.alloc(180)), subpacket(100, Buffer.alloc(180))],
      });
      return Buffer.concat([packet(4, onePass), packet(11, literal), partialPacket(2, signature)]);
    },
    expected: /^has a signature packet in parts$/,
  },
  {
    title: 'a compression that clusters do not know: none',
    make: ({ parts }) => compressed(0, joinParts(parts())),
    expected: /^uses an unsupported algorithm.*compression algorithm 0$/,
  },
  {
    title: 'data behind what is compressed',
    make: ({ parts }) => compressed(1, Buffer.concat([deflateRawSync(joinParts(parts())), Buffer.from('more')])),
    expected: /^cannot be decompressed$/,
  },
  {
    title: 'a signature beside a compressed document',
    make: ({ parts }) => {
      const { onePass, literal, signature } = parts();
      const content = Buffer.concat([packet(4, onePass), packet(11, literal)]);
      return Buffer.concat([compressed(1, deflateRawSync(content)), packet(2, signature)]);
    },
    expected: /^is compressed more than once, or in part$/,
  },
  {
    title: 'a statement with a timestamp that is no integer',
    make: ({ parts }) => joinParts(parts({}, Buffer.from(statement.toString().replace(/\d{10}/, '1.0')))),
    expected: /^has a timestamp that is not a 64-bit integer$/,
  },
  {
    title: 'a statement with a timestamp beyond 64 bits',
    make: ({ parts }) =>
      joinParts(parts({}, Buffer.from(statement.toString().replace(/\d{10}/, '9223372036854775808')))),
    expected: /^has a timestamp that is not a 64-bit integer$/,
  },
  {
    title: 'a statement with a creator that is no text',
    make: ({ parts }) => joinParts(parts({}, Buffer.from(statement.toString().replace('"Test signer"', '5')))),
    expected: /^has a creator that is not a text$/,
  },
  {
    title: 'a message beyond 50 KiB',
    make: ({ parts }) => joinParts(parts({}, Buffer.from(statementOf(digest, { creator: 'x'.repeat(51_200) })))),
    expected: /^is larger than 51200 bytes$/,
  },
  {
    title: 'more than 16 packets',
    make: ({ parts }) => Buffer.concat([...Array<Buffer>(20).fill(marker), joinParts(parts())]),
    expected: /^holds more than 16 packets$/,
  },
];

describe('the forms of a release signature', () => {
  let signer: SigningKey;
  let keys: Key[];
  let source: Forms;

  before(async () => {
    signer = await makeSigningKey();
    keys = await readKeys({ name: 'test', content: signer.publicKey });
    const { rsaKey, fingerprint } = signer;
    if (!rsaKey) throw new Error('not an RSA key');
    const date = new Date('2023-01-31');
    const base: SignedMessageOptions = { key: rsaKey, fingerprint, version: 4, compressed: false, date };
    source = { parts: (options = {}, data = statement) => signParts(data, { ...base, ...options }) };
  });

  const reasonOf = async (bytes: Buffer, by = keys): Promise<string> => {
    const verdict = await verifySignature(bytes, digest, by);
    return verdict.good ? 'good' : verdict.reason;
  };

  for (const { title, make, expected } of forms) {
    it(`${expected === 'good' ? 'takes' : 'refuses'}: ${title}`, async () => {
      const reason = await reasonOf(make(source));
      if (expected === 'good') expect(reason).to.equal('good');
      else expect(reason).to.match(expected);
    });
  }

  it('accepts a message that gpg compressed with bzip2, by an ECDSA key', async () => {
    const key = await readKeys({ name: 'bzip2', content: Buffer.from(bzip2Key, 'base64') });
    expect(await reasonOf(Buffer.from(bzip2Message, 'base64'), key)).to.equal('good');
  });

  it('names an algorithm that clusters cannot verify, and never calls it a bad signature', async () => {
    const message = await createMessage({ binary: new Uint8Array(statement) });
    const named = async (
      pair: Promise<{ privateKey: PrivateKey; publicKey: PublicKey }>,
      algorithm: RegExp,
    ): Promise<void> => {
      const { privateKey, publicKey } = await pair;
      const bytes = (await sign({ message, signingKeys: privateKey, format: 'binary' })) as Uint8Array;
      expect(await reasonOf(Buffer.from(bytes), [publicKey])).to.match(algorithm);
    };
    const common = { userIDs: { name: 'Other' }, format: 'object' } as const;
    await named(
      generateKey({ type: 'ecc', curve: 'ed25519Legacy', ...common }),
      /^uses an unsupported algorithm.*: EdDSA \(ed25519\)$/,
    );
    await named(generateKey({ type: 'curve25519', ...common }), /^uses an unsupported algorithm.*: Ed25519$/);
    await named(
      generateKey({ type: 'curve25519', ...common, config: { v6Keys: true } }),
      /^uses an unsupported algorithm.*: OpenPGP version 6, Ed25519$/,
    );
    const { signature } = source.parts();
    const postQuantum = joinParts({ ...source.parts(), signature: edit(edit(signature, 0, 6), 2, 30) });
    expect(await reasonOf(postQuantum)).to.match(/unsupported algorithm.*OpenPGP version 6, ML-DSA-65\+Ed25519$/);
  });

  it('refuses a key that clusters cannot read, for a subkey of theirs', async () => {
    const { privateKey, publicKey } = await generateKey({
      type: 'rsa',
      rsaBits: 2048,
      userIDs: { name: 'Mixed' },
      subkeys: [{ type: 'ecc', curve: 'ed25519Legacy', sign: true }],
      format: 'object',
    });
    const message = await createMessage({ binary: new Uint8Array(statement) });
    const signingKeyIDs = privateKey.getKeyID();
    const bytes = (await sign({
      message,
      signingKeys: privateKey,
      signingKeyIDs,
      format: 'binary',
    })) as Uint8Array;
    const reason = await reasonOf(Buffer.from(bytes), [publicKey]);
    expect(reason).to.match(/clusters cannot read it, because it has a part of an unsupported algorithm, EdDSA/);
  });

  it('refuses ECDSA with a hash that is shorter than the curve, as gpg does', async () => {
    const userIDs = { name: 'P-384' };
    const { privateKey, publicKey } = await generateKey({ type: 'ecc', curve: 'nistP384', userIDs, format: 'object' });
    const { publicParams, privateParams } = privateKey.keyPacket as {
      publicParams: Record<'Q', Uint8Array>;
      privateParams: Record<'d', Uint8Array>;
    };
    const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');
    const [x, y] = [base64(publicParams.Q.subarray(1, 49)), base64(publicParams.Q.subarray(49))];
    const d = base64(privateParams.d);
    const key = createPrivateKey({ key: { kty: 'EC', crv: 'P-384', x, y, d }, format: 'jwk' });
    const fingerprint = publicKey.getFingerprint();
    const reasonWith = (hash: number): Promise<string> =>
      reasonOf(joinParts(source.parts({ key, fingerprint, hash, date: new Date() })), [publicKey]);
    expect(await reasonWith(9)).to.equal('good');
    expect(await reasonWith(10)).to.equal('good');
    expect(await reasonWith(8)).to.equal('uses a hash shorter than its ECDSA key');
  });

  it('refuses a message with any bit changed that means something', async () => {
    const bytes = joinParts(source.parts());
    const { onePass, literal, signature } = source.parts();
    const document = packet(4, onePass).length + 5;
    const unsigned = document + literal.length + 5 + signature.indexOf(subpacket(16, onePass.subarray(4, 12))) - 2;
    const free = new Set([
      // The key algorithm of the one-pass packet, and its last flag, which only 0 changes.
      8,
      17,
      // The format, name and date of the document, and the unsigned subpackets.
      ...Array.from({ length: 6 }, (_, index) => document + index),
      ...Array.from({ length: 12 }, (_, index) => unsigned + index),
      // The number of bits of the signature, of which only the number of bytes counts.
      unsigned + 15,
    ]);
    const accepted = new Set<number>();
    for (let bit = 0; bit < 8 * bytes.length; bit++) {
      const at = bit >> 3;
      const mutated = edit(bytes, at, bytes.readUInt8(at) ^ (1 << (bit & 7)));
      if ((await reasonOf(mutated)) === 'good') accepted.add(at);
    }
    expect([...accepted].filter((at) => !free.has(at))).to.deep.equal([]);
  });

  describe('judged by gpg', function () {
    requirePeer(this, 'gpg');
    let home: string | undefined;

    before(async () => {
      home = await mkdtemp(join(tmpdir(), 'gpg-'));
      await runSuccessfully('gpg', ['--homedir', home, '--batch', '--no-autostart', '--import'], {
        input: signer.publicKey,
      });
    });

    after(async () => {
      if (home !== undefined) await rm(home, { recursive: true, force: true });
    });

    for (const { title, make } of forms.filter(({ expected }) => expected === 'good')) {
      it(`is good: ${title}`, async () => {
        const file = join(home ?? '', 'signature-1');
        await writeFile(file, make(source));
        const flags = ['--homedir', home ?? '', '--batch', '--no-autostart', '--trust-model=always'];
        const { code, stdout } = await run('gpg', [...flags, '--status-fd=1', '--verify', file]);
        expect(stdout).to.match(/^\[GNUPG:\] GOODSIG/m);
        expect(code).to.equal(0);
      });
    }
  });
});
