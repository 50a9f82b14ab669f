import { expect } from 'chai';
import { TransientError } from '../../../lib/content/http/retry.ts';
import { explainRegistryRefusal, type Reply } from '../../../lib/content/registry/refusals.ts';

const subject = { method: 'GET', registry: 'q.io', repository: 'a/b', what: 'blob sha256:1' };

function replyOf(status: number, body: string | object = '', more: Partial<Reply> = {}): Reply {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  const url = new URL('https://q.io/v2/a/b/blobs/sha256:1?X-Amz-Signature=secret');
  return { status, headers: {}, body: bytes, url, authorization: undefined, isCrossOrigin: false, ...more };
}

const errors = (code: string, message: string, detail: unknown = null) => ({ errors: [{ code, message, detail }] });

describe('explainRegistryRefusal', () => {
  it('has a code for each kind of refusal', () => {
    const codes = [401, 403, 404, 429, 500, 418].map((status) => explainRegistryRefusal(subject, replyOf(status)).code);
    expect(codes).to.deep.equal([
      'unauthorized',
      'denied',
      'not-found',
      'rate-limited',
      'server-error',
      'server-error',
    ]);
  });

  it('knows which errors a retry may fix', () => {
    const transient = [400, 401, 404, 408, 429, 500, 501, 502, 503, 504].filter(
      (status) => explainRegistryRefusal(subject, replyOf(status)) instanceof TransientError,
    );
    expect(transient).to.deep.equal([408, 429, 500, 502, 503, 504]);
    const reply = replyOf(429, '', { headers: { 'retry-after': '7' } });
    expect(explainRegistryRefusal(subject, reply)).to.have.property('retryAfter', 7000);
  });

  it('knows a registry that takes no uploads at all', () => {
    const codes = (method: string): string[] =>
      [400, 404, 405, 501].map((status) => explainRegistryRefusal({ ...subject, method }, replyOf(status)).code);
    expect(codes('POST')).to.deep.equal(['denied', 'denied', 'denied', 'denied']);
    expect(codes('PUT')).to.deep.equal(['server-error', 'not-found', 'denied', 'server-error']);
    expect(codes('GET')).to.deep.equal(['server-error', 'not-found', 'server-error', 'server-error']);
  });

  it('knows the refusals of Quay that are about no user', () => {
    const refused = (status: number, message: string) =>
      explainRegistryRefusal({ ...subject, method: 'POST' }, replyOf(status, errors('DENIED', message, {})));
    const full = refused(403, 'Quota has been exceeded on namespace');
    expect(full.code).to.equal('disk-full');
    expect(full.hint).to.contain('quota');
    expect(refused(405, 'System is currently read-only.').hint).to.contain('read-only');
    expect(refused(403, 'no').code).to.equal('denied');
  });

  it('knows a registry that accepts no images of Docker', () => {
    const body = errors('MANIFEST_INVALID', 'manifest invalid', { mediaType: 'application/vnd.docker' });
    const error = explainRegistryRefusal({ ...subject, method: 'PUT' }, replyOf(415, body));
    expect(error.code).to.equal('unsupported');
    expect(error.hint).to.contain('docker2s2');
  });

  it('quotes the registry’s own errors', () => {
    const body = errors('MANIFEST_BLOB_UNKNOWN', 'blob unknown to registry', { digest: 'sha256:2' });
    const error = explainRegistryRefusal({ ...subject, method: 'PUT' }, replyOf(400, body));
    expect(error.code).to.equal('not-found');
    expect(error.message).to.contain('MANIFEST_BLOB_UNKNOWN: blob unknown to registry: sha256:2');
  });

  it('quotes the reason that Quay gives', () => {
    const text = (code: string, detail: object): string =>
      explainRegistryRefusal({ ...subject, method: 'PUT' }, replyOf(400, errors(code, 'invalid', detail))).message;
    expect(text('MANIFEST_INVALID', { message: 'Unknown blob `sha256:2`' })).to.contain(
      'invalid: Unknown blob `sha256:2`',
    );
    expect(text('BLOB_UPLOAD_INVALID', { reason: 'Missing digest arg' })).to.contain('invalid: Missing digest arg');
  });

  it('says whether credentials were wanted or refused', () => {
    expect(explainRegistryRefusal(subject, replyOf(401)).message).to.match(/^q\.io requires credentials/);
    const refused = (authorization: string): string =>
      explainRegistryRefusal(subject, replyOf(401, '', { authorization })).message;
    expect(refused('Basic abc')).to.match(/^q\.io rejects the given credentials/);
    expect(refused('Bearer abc')).to.match(/^q\.io gave a token, which does not allow to read blob/);
  });

  it('quotes one short line without control characters', () => {
    const message = `bad\u0007\n\u001b[31mthings ${'x'.repeat(1000)}`;
    const error = explainRegistryRefusal(subject, replyOf(500, errors('UNKNOWN', message)));
    expect(error.message).to.not.match(/[\u0000-\u001f]/);
    expect(error.message).to.have.length.below(500);
  });

  it('finds the words in answers of storage and of proxies', () => {
    const s3 =
      '<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Request has ' +
      'expired</Message><AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>';
    const elsewhere = explainRegistryRefusal(
      subject,
      replyOf(403, s3, { isCrossOrigin: true, url: new URL('https://cdn/x?sig=1') }),
    );
    expect(elsewhere.message).to.contain('AccessDenied: Request has expired').and.not.contain('AKIA');
    expect(elsewhere).to.be.instanceOf(TransientError);
    const html = '<html><head><title>502 Bad Gateway</title></head><body>x</body></html>';
    expect(explainRegistryRefusal(subject, replyOf(502, html)).message).to.contain('(502 Bad Gateway)');
    expect(explainRegistryRefusal(subject, replyOf(400, 'plain words')).message).to.contain('(plain words)');
  });

  it('never shows a token, a password or the query of a URL', () => {
    const body = errors('UNAUTHORIZED', 'token abcdef is bad, see https://cdn/x?sig=verysecret now');
    const { message } = explainRegistryRefusal(subject, replyOf(400, body, { authorization: 'Bearer abcdef' }));
    expect(message)
      .to.contain('https://cdn/x now')
      .and.not.match(/abcdef|verysecret|X-Amz/);
    const auth = Buffer.from('me:pa:ss').toString('base64');
    const echo = replyOf(401, `you sent ${auth}, that is pa:ss of me`, { authorization: `Basic ${auth}` });
    expect(explainRegistryRefusal(subject, echo).message).to.contain('(you sent …, that is … of me)');
    const other = explainRegistryRefusal(subject, replyOf(500, '', { isCrossOrigin: true }));
    expect(other.message).to.not.contain('secret');
  });
});
