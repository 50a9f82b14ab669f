import { expect } from 'chai';
import { nameUpdateReport, openUpdateReport, updateReportType } from '../../lib/config/updateReport.ts';
import { exportPublicKey, signEnvelope } from '../../lib/release/sigstore/envelope.ts';
import { readPolicyKey } from '../../lib/release/sigstore/trustRoot.ts';
import { makeReportKey, makeUpdateReport, signUpdateReport } from '../support/content/updateReport.ts';
import { failureOf } from '../support/program/failure.ts';

describe('the report of an update', () => {
  const [key, other] = [makeReportKey(), makeReportKey()];
  const publicOf = (own: typeof key) => readPolicyKey(exportPublicKey(own));
  const report = makeUpdateReport(key);
  const open = async (bytes: Buffer, ...keys: (typeof key)[]) =>
    Promise.resolve().then(() => openUpdateReport(bytes, 'x.json', keys.map(publicOf)));

  it('is trusted if it is signed by a given key, and otherwise a claim of its own key', async () => {
    const bytes = signUpdateReport(report, key);
    const { fingerprint } = publicOf(key);
    expect(await open(bytes, other, key)).to.deep.equal({ report, signer: fingerprint, trusted: true });
    expect(await open(bytes)).to.deep.equal({ report, signer: fingerprint, trusted: false });
  });

  it('is refused if it is signed by another key than the given ones, or than it names', async () => {
    await failureOf(open(signUpdateReport(report, other), key), 'untrusted');
    await failureOf(open(signUpdateReport(report, other)), 'untrusted');
    const { message } = await failureOf(open(signUpdateReport(makeUpdateReport(other), other), key), 'untrusted');
    expect(message).to.include(`it is signed by ${publicOf(other).fingerprint}`);
  });

  it('is refused after a change of any byte of its content', async () => {
    const text = signUpdateReport(report, key).toString();
    const payload = /"payload": "(.*)"/.exec(text)?.[1] ?? '';
    const size = Buffer.from(payload, 'base64').length;
    for (let position = 0; position < size; position += 7) {
      const changed = Buffer.from(payload, 'base64');
      changed[position] = (changed[position] ?? 0) ^ 1;
      const bytes = Buffer.from(text.replace(payload, changed.toString('base64')));
      expect((await failureOf(open(bytes, key))).code).to.be.oneOf(['untrusted', 'invalid-file']);
    }
  });

  it('has one form: repeated keys, other order and blanks are refused, although they are signed', async () => {
    const text = JSON.stringify(report);
    const spellings = [
      text.replace('{', '{ '),
      text.replace('"sequence":3', '"sequence":4,"sequence":3'),
      text.replace('"sequence":3', '"sequence":3.0'),
    ];
    for (const each of spellings)
      await failureOf(open(Buffer.from(signEnvelope(updateReportType, Buffer.from(each), key)), key), 'invalid-file');
  });

  it('is refused in another format, which it names', async () => {
    const bytes = signUpdateReport({ ...report, formatVersion: 2 as 1 }, key);
    expect((await failureOf(open(bytes, key), 'invalid-file')).message).to.include(
      'this program reads formatVersion 1',
    );
  });

  it('has no other name than letters, digits and dashes', async () => {
    expect(nameUpdateReport(report)).to.equal(
      'update-report-c0ffee00-0000-4000-8000-000000000001-20261120T100000Z.json',
    );
    for (const change of [{ cluster: '../../etc' }, { created: '../2026' }, { created: '2026-11-20 10:00' }])
      await failureOf(open(signUpdateReport(makeUpdateReport(key, change), key), key), 'invalid-file');
  });

  it('is refused with malformed fields, and above its limit', async () => {
    for (const change of [{ updates: [{}] }, { sequence: -1 }, { site: { nodes: 1 } }, { reason: 'x' }])
      await failureOf(open(signUpdateReport(makeUpdateReport(key, change as object), key), key), 'invalid-file');
    await failureOf(open(Buffer.alloc(5 * 1024 * 1024), key), 'too-large');
  });
});
