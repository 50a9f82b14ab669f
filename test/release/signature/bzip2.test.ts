import { AssertionError, expect } from 'chai';
import { decompressBzip2 } from '../../../lib/release/signature/bzip2.ts';

// Created by bzip2 1.0.8.
const empty = 'QlpoORdyRThQkAAAAAA=';
const short = 'QlpoOTFBWSZTWSmqMowAAAORgEAEIgQYACAAIj9UnoQhgLryJVua5GNfF3JFOFCQKaoyjA==';
const blocks =
  'QlpoMTFBWSZTWfFLiycAYaMBADAAIAAwgCkZQlBaoSguYoKyTKayA328+ADDRgIAYABAAGEAUjVCUFlCUFzFBWSZTWetob+EAMN0BADAAIAAwgE1GIRVMQiqcXckU4UJAtO/+GA=';
const runs =
  'QlpoOTFBWSZTWX7IGxQAADN/////////////////////////////////////////////sADNsICYEwA1MABMAATAAAEwAAAAEwAAAAAAAaAAAAAAAmAAAAAAAAAAyRoTAmCYAAEyaYAAEwAAACYA0AAAARgAAAAEwAAAARgAAAAAAAACNMIAAAAAAAAAACYAAAAAAAAAABMAAAAAAAAAAAAAAAAAAJgJjiYGH8BASFBYYG/kODxAREhMUFRYXAfoYGRobHB0eHyAhIiMk/ZKTE5QUlRWWFpcXmBiZmhqbG5wcnR2eHp8f/xAQUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVpbXF1eX2BhYmEF7BGMF6BAsANCgYIGygAAAwoEAzM7Q0tTW2Nrc3uDi5Obo6uzu8PL09vj7+Py/P8BAwUHCQsNDxETFRcZGx0fISMlJykrLAZeYmZqbnJ2en6ChoqOkpaanqKmqq6ytrq+wsbKztLW2t7i5uru8vb6/wP/g4WHiYuNj5GTlZeZm52foaOlp6mrra+xs7W3ubu9v8HDxcb/ycnLzc/R09XX2dvd3+Hj5efp6+0oABfcD8fP19i7kinChIP2QNig';
const limit = 1024 * 1024;
const decompress = (base64: string, most = limit): Buffer => decompressBzip2(Buffer.from(base64, 'base64'), most);

describe('decompressBzip2', () => {
  it('reads the output of bzip2: nothing, a text, several blocks, runs and all bytes', () => {
    expect(decompress(empty)).to.have.length(0);
    expect(decompress(short).toString()).to.equal('a release, a release, a release');
    expect(decompress(blocks).equals(Buffer.alloc(250_000, 'ab'))).to.equal(true);
    const all = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    const text = Buffer.from(`aaaa${'b'.repeat(259)}${'c'.repeat(1000)}`);
    expect(decompress(runs).equals(Buffer.concat([text, all]))).to.equal(true);
  });

  it('stops at the limit', () => {
    expect(() => decompress(blocks, 249_999)).to.throw(RangeError);
    expect(decompress(blocks, 250_000)).to.have.length(250_000);
  });

  it('refuses streams that bzip2 never writes: one table only, and codes of less than 1 or more than 20 bits', () => {
    const bits = [...Buffer.from(short, 'base64')].map((byte) => byte.toString(2).padStart(8, '0')).join('');
    const read = (text: string): string => {
      const bytes = text.match(/.{8}/g) ?? [];
      return decompressBzip2(Buffer.from(bytes.map((byte) => parseInt(byte, 2))), limit).toString();
    };
    const [countAt, firstAt, secondAt, secondEnd] = [201, 220, 256, 272];
    const oneTable = `${bits.slice(0, countAt)}001${bits.slice(countAt + 3, secondAt)}${bits.slice(secondEnd)}`;
    expect(() => read(oneTable)).to.throw('wrong number of tables');
    /** Changes the length of the first code by some steps and back. */
    const detour = (there: string, back: string, steps: number): string =>
      bits.slice(0, firstAt + 5) + there.repeat(steps) + back.repeat(steps) + bits.slice(firstAt + 5);
    const [longer, shorter] = ['10', '11'];
    expect(read(detour(longer, shorter, 2))).to.equal('a release, a release, a release');
    expect(() => read(detour(longer, shorter, 20))).to.throw('wrong code length');
    expect(() => read(detour(shorter, longer, 20))).to.throw('wrong code length');
  });

  it('refuses data that is truncated, followed by more, or corrupt in any bit', () => {
    const bytes = Buffer.from(short, 'base64');
    expect(() => decompressBzip2(Buffer.concat([bytes, Buffer.alloc(1)]), limit)).to.throw('trailing data');
    for (let length = 0; length < bytes.length; length++) {
      expect(() => decompressBzip2(bytes.subarray(0, length), limit), String(length)).to.throw();
    }
    const original = decompress(short);
    const free: number[] = [];
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const corrupt = Buffer.from(bytes);
      corrupt[bit >> 3] = (corrupt[bit >> 3] ?? 0) ^ (0x80 >> (bit & 7));
      try {
        expect(decompressBzip2(corrupt, limit).equals(original), String(bit)).to.equal(true);
        free.push(bit);
      } catch (error) {
        if (error instanceof AssertionError) throw error;
      }
    }
    // Another size of blocks, and a table that nothing uses.
    expect(free).to.deep.equal([28, 31, 256, 257, 259, 260, 263, 264]);
  });
});
