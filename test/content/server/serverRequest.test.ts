import { expect } from 'chai';
import { isOwnHost, parseRange, readPage } from '../../../lib/content/server/serverRequest.ts';

describe('parseRange', () => {
  it('reads one range of bytes, its end cut to the content', () => {
    expect(parseRange('bytes=0-9', 100)).to.deep.equal({ start: 0, end: 10 });
    expect(parseRange('bytes=90-', 100)).to.deep.equal({ start: 90, end: 100 });
    expect(parseRange('bytes=-1000', 100)).to.deep.equal({ start: 0, end: 100 });
    expect(parseRange('bytes=90-1000', 100)).to.deep.equal({ start: 90, end: 100 });
  });

  it('tells a range that no content can satisfy', () => {
    expect(parseRange('bytes=100-', 100)).to.equal('unsatisfiable');
    expect(parseRange('bytes=-0', 100)).to.equal('unsatisfiable');
    expect(parseRange('bytes=0-', 0)).to.equal('unsatisfiable');
    expect(parseRange('bytes=-1', 0)).to.equal('unsatisfiable');
  });

  it('ignores a Range other than one range of bytes', () => {
    for (const header of [undefined, '', 'bytes=', 'bytes=-', 'bytes=3-2', 'bytes=0-1,2-3', 'items=0-1']) {
      expect(parseRange(header, 100), header).to.equal(undefined);
    }
  });
});

describe('readPage', () => {
  it('gives all in order unless asked for a page', () => {
    expect(readPage(['b', 'a'], '')).to.deep.equal({ items: ['a', 'b'] });
    expect(readPage(['b', 'a'], 'n=0')).to.deep.equal({ items: ['a', 'b'] });
    expect(readPage([], 'n=3')).to.deep.equal({ items: [] });
  });

  it('gives pages that lead to each other', () => {
    expect(readPage(['c', 'b', 'a'], 'n=2')).to.deep.equal({ items: ['a', 'b'], next: 'n=2&last=b' });
    expect(readPage(['c', 'b', 'a'], 'n=2&last=b')).to.deep.equal({ items: ['c'] });
  });
});

describe('isOwnHost', () => {
  it('accepts addresses, localhost and the names of the server, with any port', () => {
    for (const host of [
      undefined,
      '127.0.0.1',
      '10.0.0.5:8080',
      '[fd00::5]:8080',
      'localhost:1',
      'Depot.test.',
      'depot.test:8080',
    ])
      expect(isOwnHost(host, ['depot.test']), host).to.equal(true);
  });

  it('refuses another name, which a page of another site may have resolved to this server', () => {
    for (const host of ['', 'other.test', 'depot.test.other.test', '[depot.test]', 'localhost.other.test'])
      expect(isOwnHost(host, ['depot.test']), host).to.equal(false);
  });
});
