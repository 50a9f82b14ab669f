import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import {
  commandLinesOf,
  describeContainers,
  readBase64,
  readContainers,
  readDataUrl,
} from '../../../lib/readiness/lint/container.ts';

const digest = `sha256:${'a'.repeat(64)}`;

describe('readContainers', () => {
  it('reads the containers of all lists, image volumes and container disks', () => {
    const found = readContainers({
      containers: [{ name: 'a', image: 'x/a:1' }],
      initContainers: [{ name: 'b', image: 'x/b:1' }],
      ephemeralContainers: [{ name: 'c', image: 'x/c:1' }],
      volumes: [
        { name: 'd', image: { reference: 'x/d:1', pullPolicy: 'Never' } },
        { name: 'e', containerDisk: { image: 'x/e:1', imagePullPolicy: 'Always' } },
        { name: 'f', emptyDir: {} },
      ],
    });
    expect(found.map(({ kind, name, image, statedPolicy }) => [kind, name, image, statedPolicy])).to.deep.equal([
      ['container', 'a', 'x/a:1', undefined],
      ['init container', 'b', 'x/b:1', undefined],
      ['ephemeral container', 'c', 'x/c:1', undefined],
      ['image volume', 'd', 'x/d:1', 'Never'],
      ['container disk', 'e', 'x/e:1', 'Always'],
    ]);
  });

  it('knows the pull policy that the API server adds', () => {
    const policyOf = (image: string): string | undefined => readContainers({ containers: [{ image }] })[0]?.policy;
    for (const image of ['x/y', 'x/y:latest', 'quay.io:443/x/y']) expect(policyOf(image), image).to.equal('Always');
    for (const image of ['x/y:1', `x/y@${digest}`, `x/y:latest@${digest}`])
      expect(policyOf(image), image).to.equal('IfNotPresent');
  });
});

describe('commandLinesOf', () => {
  const linesOf = (fields: object): [string, string[]][] => {
    const [container] = readContainers({ containers: [fields] });
    return [...commandLinesOf(container!)];
  };

  it('names the field that has the command', () => {
    expect(linesOf({ command: ['a'], args: ['b'] })).to.deep.equal([['command', ['a', 'b']]]);
    expect(linesOf({ args: ['b'] })).to.deep.equal([['args', ['b']]]);
    expect(linesOf({})).to.deep.equal([]);
  });

  it('reads the commands of hooks and probes', () => {
    const exec = (word: string): object => ({ exec: { command: [word] } });
    expect(linesOf({ lifecycle: { preStop: exec('a') }, startupProbe: exec('b') })).to.deep.equal([
      ['lifecycle.preStop.exec.command', ['a']],
      ['startupProbe.exec.command', ['b']],
    ]);
  });
});

describe('describeContainers', () => {
  it('makes containers the subject of a problem', () => {
    const [a, b] = readContainers({ containers: [{ name: 'a' }, { name: 'b' }] });
    const [init] = readContainers({ initContainers: [{ name: 'i' }] });
    if (!a || !b || !init) throw new Error('there are no containers');
    expect(describeContainers([a], 'pulls x')).to.equal('container a pulls x');
    expect(describeContainers([a, b], 'pulls x')).to.equal('containers a, b pull x');
    expect(describeContainers([a, init], 'pulls x')).to.equal('containers a (container), i (init container) pull x');
  });
});

describe('readDataUrl and readBase64', () => {
  it('decode text that is plain, escaped, base64 or gzip', () => {
    expect(readDataUrl('data:,a%20b%C3%A9')).to.equal('a bé');
    expect(readDataUrl('data:text/plain;charset=utf-8,100%')).to.equal('100%');
    expect(readDataUrl(`data:;base64,${Buffer.from('a b').toString('base64')}`)).to.equal('a b');
    expect(readBase64(Buffer.from('\x1fA').toString('base64'))).to.equal('\x1fA');
    expect(readBase64(gzipSync('a b').toString('base64'))).to.equal('a b');
  });

  it('return nothing for another URL, and for content that is no text', () => {
    expect(readDataUrl('https://x.test/data:,a')).to.equal(undefined);
    expect(readBase64(Buffer.from([0xff, 0xfe]).toString('base64'))).to.equal(undefined);
    expect(readBase64(Buffer.from([0x1f, 0x8b, 1]).toString('base64'))).to.equal(undefined);
  });

  it('refuse content that is too large when it is unpacked', () => {
    const bytes = (size: number): string => gzipSync(Buffer.alloc(size, 'a')).toString('base64');
    expect(readBase64(bytes(16 * 1024 * 1024))).to.have.length(16 * 1024 * 1024);
    expect(() => readBase64(bytes(16 * 1024 * 1024 + 1))).to.throw(RangeError, '16 MiB');
  });
});
