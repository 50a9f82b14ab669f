import { expect } from 'chai';
import { DocumentSplitter } from '../../../lib/release/catalog/documentSplitter.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('DocumentSplitter', () => {
  const split = (text: string | Buffer, size: number): string[] => {
    const found: string[] = [];
    const splitter = new DocumentSplitter('catalog.json', (document) => found.push(document.text));
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; at += size) splitter.write(bytes.subarray(at, at + size));
    splitter.end();
    return found;
  };

  it('returns the text of JSON objects without separators, in chunks of any size', () => {
    const objects = ['{"a":"}\\"{"}', '{"b":{"c":[1]}}'];
    const text = ` ${objects.join('\n\n')}\n`;
    for (let size = 1; size <= text.length; size++) expect(split(text, size), String(size)).to.deep.equal(objects);
  });

  it('ignores empty YAML documents', () => {
    expect(split('---\n---\nname: a\n---\n', 5)).to.deep.equal(['{"name":"a"}']);
  });

  it('refuses a document of more than 32 MiB', async () => {
    const bytes = Buffer.concat([Buffer.from('{"a":"'), Buffer.alloc(32 * 1024 * 1024, 'x'), Buffer.from('"}')]);
    await failureOf(
      Promise.resolve().then(() => split(bytes, 1024 * 1024)),
      'too-large',
    );
  });
});
