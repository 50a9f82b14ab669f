import { expect } from 'chai';
import { hintOf, PluginError, withHint } from '../lib/errors.ts';

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
