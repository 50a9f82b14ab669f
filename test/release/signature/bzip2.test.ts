import { expect } from 'chai';
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
  it('reads what bzip2 wrote: nothing, a text, several blocks, runs and all bytes', () => {
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

  it('refuses data that is truncated, followed by more, or corrupt in any bit', () => {
    const bytes = Buffer.from(short, 'base64');
    expect(() => decompressBzip2(Buffer.concat([bytes, Buffer.alloc(1)]), limit)).to.throw('trailing data');
    for (let length = 0; length < bytes.length; length++) {
      expect(() => decompressBzip2(bytes.subarray(0, length), limit), String(length)).to.throw();
    }
    const original = decompress(short);
    for (let bit = 32; bit < bytes.length * 8; bit++) {
      const corrupt = Buffer.from(bytes);
      corrupt[bit >> 3] = (corrupt[bit >> 3] ?? 0) ^ (0x80 >> (bit & 7));
      let output: Buffer | undefined;
      try {
        output = decompressBzip2(corrupt, limit);
      } catch {
        continue;
      }
      // Bits without a meaning: padding, and codes that no symbol uses.
      expect(output.equals(original), String(bit)).to.equal(true);
    }
  });
});
