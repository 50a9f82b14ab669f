import { expect } from 'chai';
import { hintOf, PluginError, withHint, collectFailures, firstMessage, nameSome } from '../lib/errors.ts';

describe('withHint', () => {
  const error = new PluginError('digest-mismatch', '/usb/a.tar: the content is corrupt');

  it('adds a hint to an error about the subject, and keeps its code, message and cause', () => {
    const advised = withHint(error, '/usb/a.tar', 'Copy it again.');
    expect(advised).to.include({ code: error.code, message: error.message, hint: 'Copy it again.', cause: error });
  });

  it('keeps an error about something else, one with a hint, and a defect', () => {
    const hinted = new PluginError('disk-full', '/usb/a.tar cannot be read', { hint: 'Make room.' });
    for (const [other, subject] of [
      [error, '/usb/b.tar'],
      [hinted, '/usb/a.tar'],
      [new Error('/usb/a.tar'), '/usb/a.tar'],
    ] as const) {
      expect(withHint(other, subject, 'Copy it again.')).to.equal(other);
    }
    expect(hintOf(hinted)).to.equal('Make room.');
  });
});

describe('collectFailures', () => {
  const error = (message: string): PluginError => new PluginError('unreachable', message);

  it('leaves one error as it is, and lists ten of many', () => {
    const only = error('only');
    const summary = { title: 'some failed', hint: 'try again' };
    expect(collectFailures([only], summary)).to.equal(only);
    expect(collectFailures([only, only], summary).message).to.equal('some failed:\n  only\n  only');
    const all = collectFailures(
      Array.from({ length: 12 }, (_, index) => error(`number ${String(index)}`)),
      summary,
    );
    expect(all).to.include({ code: 'partial', hint: 'try again' });
    expect(all.message).to.match(/^some failed:\n {2}number 0\n.*number 9\n {2}and 2 more, which -v shows$/s);
    expect((all.cause as AggregateError).errors).to.have.length(12);
  });
});

describe('nameSome', () => {
  it('says how many names it leaves out', () => {
    expect(nameSome(['a', 'b', 'c'])).to.equal('a, b, c');
    expect(nameSome(['a', 'b', 'c', 'd'])).to.equal('a, b, c and 1 more');
    expect(nameSome(['a', 'b', 'c'], 1, '; ')).to.equal('a and 2 more');
  });
});

describe('firstMessage', () => {
  it('gives the first of several problems, if there is one', () => {
    const [one, two] = [{ message: 'one' }, { message: 'two' }];
    expect(firstMessage([])).to.equal(undefined);
    expect(firstMessage([one])).to.equal('one');
    expect(firstMessage([one, two, two])).to.equal('one, and 2 more problems');
  });
});
