import { expect } from 'chai';
import { signMachO } from '../.config/machOSignature.ts';
import { checkMachOSignature } from './support/project/machO.ts';

const headerSize = 0x4000;

/** A program as a linker lays it out, with a tail of any length; its code does nothing. */
function makeProgram({ tail = 1000, space = headerSize - 32 - 3 * 72, text = 3 * 0x4000 } = {}): Buffer {
  const content = Buffer.alloc(text + tail, 'code');
  content.fill(0, 0, headerSize);
  const words = [0xfeedfacf, 0x0100000c, 0, 2, 3, 3 * 72, 0x200085, 0];
  words.forEach((word, index) => content.writeUInt32LE(word, 4 * index));
  const segments = [
    ['__PAGEZERO', 0, 2 ** 32, 0, 0],
    ['__TEXT', 2 ** 32, text, 0, text],
    ['__LINKEDIT', 2 ** 32 + text, 0x4000, text, tail],
  ] as const;
  for (const [index, [name, ...numbers]] of segments.entries()) {
    const place = 32 + 72 * index;
    content.writeUInt32LE(0x19, place);
    content.writeUInt32LE(72, place + 4);
    content.write(name, place + 8);
    numbers.forEach((number, at) => content.writeBigUInt64LE(BigInt(number), place + 24 + 8 * at));
  }
  content.fill('code', 32 + 3 * 72 + space, headerSize);
  return content;
}

describe('signMachO', () => {
  it('signs every page of a program, whatever its length, in nobody’s name', () => {
    for (const tail of [16, 1000, 0x4000 - 16, 0x4000, 70_001]) {
      const program = makeProgram({ tail });
      const { identifier, flags, pages } = checkMachOSignature(signMachO(program, 'oc-disconnected'));
      expect({ identifier, flags }).to.deep.equal({ identifier: 'oc-disconnected', flags: 2 });
      expect(pages).to.have.length(Math.ceil(program.length / 4096));
    }
  });

  it('alters nothing but the header', () => {
    const program = makeProgram();
    const signed = signMachO(program, 'x');
    expect(signed.subarray(4096, program.length).equals(program.subarray(4096))).to.equal(true);
    expect(program.equals(makeProgram())).to.equal(true);
    expect(signed.equals(signMachO(program, 'x'))).to.equal(true);
  });

  it('makes a signature that notices every change', () => {
    const signed = signMachO(makeProgram(), 'x');
    for (const [place, problem] of [
      [headerSize - 4096, /page 3/],
      [0x5000, /page 5/],
      [makeProgram().length - 1, /page 12/],
      [signed.indexOf(Buffer.from('fade0c01', 'hex')) + 11, /slot 2/],
    ] as const) {
      const corrupt = Buffer.from(signed);
      corrupt.writeUInt8((corrupt[place] ?? 0) ^ 1, place);
      expect(() => checkMachOSignature(corrupt)).to.throw(problem);
    }
  });

  it('refuses what it cannot sign', () => {
    const signed = signMachO(makeProgram(), 'x');
    expect(() => signMachO(signed, 'x')).to.throw('it has a signature already');
    expect(() => signMachO(Buffer.from('\x7fELF and so on'), 'x')).to.throw('no program for macOS');
    expect(() => signMachO(makeProgram({ space: 8 }), 'x')).to.throw('no space');
    expect(() => signMachO(Buffer.concat([makeProgram(), Buffer.alloc(1)]), 'x')).to.throw('not its end');
  });
});
