import { Readable } from 'node:stream';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { failureOf } from '../../support/program/failure.ts';
import { bytes, digest, useTransport, user } from './transportSite.ts';

describe('AuthenticatedClient', () => {
  const site = useTransport();
  const { start, startContent, open, get, blob, download, stream } = site;

  describe('login', () => {
    it('logs in once, and remembers', async () => {
      const server = await start({ bearer: user });
      const transport = await open(server);
      for (let index = 0; index < 3; index += 1)
        expect((await transport.send(get(server))).body.equals(bytes)).to.equal(true);
      expect(server.requests.map(({ status }) => status)).to.deep.equal([401, 200, 200, 200]);
      expect(server.tokens?.requests).to.have.length(1);
    });

    it('logs in again when a token expires in the middle of a run', async () => {
      const server = await start({ bearer: user });
      const transport = await open(server);
      await transport.send(get(server));
      server.revokeTokens();
      expect((await transport.send(get(server))).status).to.equal(200);
      server.fault(/blobs/, { cut: { after: 400_000, how: 'reset' } }, { times: 1 });
      let revoked = false;
      const chunks: Buffer[] = [];
      await transport.download(blob(server), bytes.length, 0, (chunk) => {
        if (!revoked) server.revokeTokens();
        revoked = true;
        chunks.push(Buffer.from(chunk));
      });
      expect(Buffer.concat(chunks).equals(bytes)).to.equal(true);
    });

    it('opens a body again when its request has to be repeated with a login', async () => {
      const server = await start({ bearer: user });
      const transport = await open(server);
      await transport.send(get(server, { actions: 'pull,push' }));
      server.revokeTokens();
      const content = Buffer.from('pushed');
      let opened = 0;
      const body = (): Promise<Readable> => {
        opened += 1;
        return Promise.resolve(Readable.from([content]));
      };
      const target = `blobs/uploads/?digest=${digestOf(content)}`;
      const headers = { 'Content-Length': String(content.length) };
      await transport.send(get(server, { method: 'POST', target, headers, body, actions: 'pull,push' }));
      expect(server.content.blobs.get(digestOf(content))).to.deep.equal(content);
      expect(opened).to.equal(2);
    });

    it('quotes the registry if its token server gives the refused token again', async () => {
      const server = await start({ bearer: user });
      server.tokens?.fault(/./, { answer: { status: 200, body: '{"token":"same"}' } });
      const transport = await open(server);
      for (const most of [2, 3]) {
        const error = await failureOf(transport.send(get(server)), 'unauthorized');
        expect(error.message).to.contain('gave a token').and.contain('authentication required');
        expect(server.requests).to.have.length(most);
      }
    });

    it('gives up when a new token is refused too, in the registry’s words and without a secret', async () => {
      const server = await start({ bearer: { ...user, allow: () => false } });
      const error = await failureOf((await open(server)).send(get(server)), 'unauthorized');
      expect(error.message).to.contain(server.host).and.contain('authentication required');
      expect(error.settings).to.deep.equal(['pullSecret']);
      expect(server.requests).to.have.length(2);
      const token = /Bearer (.+)/.exec(server.requests[1]?.headers.authorization ?? '')?.[1] ?? 'none';
      expect([error.message, error.hint, ...site.context.lines].join())
        .to.not.contain(token)
        .and.not.contain(user.password);
    });
  });

  describe('redirects', () => {
    for (const status of [301, 302, 303, 307, 308] as const) {
      it(`follows ${status} to another origin without credentials`, async () => {
        const server = await start({ basic: user });
        const host = await startContent(server);
        server.fault(/^GET .*blobs/, { redirect: { status, to: host.locate } });
        const transport = await open(server);
        expect((await download(transport, server)).equals(bytes)).to.equal(true);
        expect((await stream(transport, server)).equals(bytes)).to.equal(true);
        expect(host.requests.every(({ headers }) => headers.authorization === undefined)).to.equal(true);
      });
    }

    it('keeps credentials on the way to another place of the same origin', async () => {
      const server = await start({ basic: user });
      const place = `/v2/a/b/blobs/${digest}?moved`;
      server.fault(/^GET .*blobs\/[^?]*$/, { redirect: { status: 302, to: place } }, { after: 1 });
      const transport = await open(server);
      await transport.send(get(server));
      expect((await transport.send(get(server))).body.equals(bytes)).to.equal(true);
      expect(server.requests.at(-1)?.query.has('moved')).to.equal(true);
      expect(server.requests.at(-1)?.headers.authorization).to.not.equal(undefined);
    });

    it('does not give credentials again when redirects lead back', async () => {
      const server = await start({ basic: { ...user, anonymousPull: true } });
      const host = await startContent(server);
      server.fault(
        /first/,
        { answer: { status: 401, headers: { 'www-authenticate': 'Basic realm="x"' } } },
        { times: 1 },
      );
      server.fault(/first/, { redirect: { status: 307, to: `${host.url}/away` } }, { after: 1 });
      host.fault(/away/, { redirect: { status: 307, to: `${server.url}/v2/a/b/blobs/${digest}?back` } });
      const reply = await (await open(server)).send(get(server, { target: 'first' }));
      expect(reply.body.equals(bytes)).to.equal(true);
      expect(server.requests.map(({ headers }) => headers.authorization !== undefined)).to.deep.equal([
        false,
        true,
        false,
      ]);
    });

    for (const [title, request] of [
      ['a download', {}],
      ['an upload', { method: 'POST', target: 'blobs/uploads/', body: Buffer.from('x'), actions: 'pull,push' }],
    ] as const) {
      it(`does not log in at the target of a redirect of ${title} that answers 401`, async () => {
        const server = await start({ basic: user });
        const host = await startContent(server);
        server.fault(/a\/b/, { redirect: { status: 307, to: `${host.url}/away` } }, { after: 1 });
        for (const challenge of [`Bearer realm="${host.url}/token",service="s"`, 'Basic realm="r"']) {
          const headers = { 'www-authenticate': challenge };
          host.fault(/away/, { answer: { status: 401, headers } });
          const transport = await open(server);
          await failureOf(transport.send(get(server, request)));
          host.clearFaults();
        }
        expect(new Set(host.requests.map(({ path }) => path))).to.deep.equal(new Set(['/away']));
        expect(host.requests.every(({ headers }) => headers.authorization === undefined)).to.equal(true);
      });
    }

    it('stops after too many redirects', async () => {
      const server = await start();
      server.fault(/blobs/, { redirect: { status: 302, to: `/v2/a/b/blobs/${digest}` } });
      await failureOf((await open(server)).send(get(server)), 'server-error');
      expect(server.requests).to.have.length(11);
    });

    it('repeats an upload at the address of a 307, and follows no other redirect of it', async () => {
      const server = await start();
      const content = Buffer.from('moved');
      const target = `blobs/uploads/?digest=${digestOf(content)}`;
      const request = get(server, { method: 'POST', target, body: content, actions: 'pull,push' });
      server.fault(/a\/b/, { redirect: { status: 307, to: `/v2/c/d/${target}` } }, { times: 1 });
      const transport = await open(server);
      await transport.send(request);
      expect(server.content.blobs.get(digestOf(content))).to.deep.equal(content);
      server.fault(/a\/b/, { redirect: { status: 302, to: `/v2/c/d/${target}` } }, { times: 1 });
      await failureOf(transport.send(request), 'server-error');
    });

    it('asks the registry again when a signed location is refused, and shows no signature', async () => {
      const server = await start();
      const host = await startContent(server);
      server.fault(/blobs/, { redirect: { status: 307, to: host.locate } });
      const expired = host.fault(
        /data/,
        { answer: { status: 403, body: '<Error><Code>Expired</Code></Error>' } },
        { times: 2 },
      );
      expect((await download(await open(server), server)).equals(bytes)).to.equal(true);
      expect(expired.hits).to.equal(2);
      host.fault(/data/, { answer: { status: 500 } });
      const error = await failureOf(download(await open(server), server), 'server-error');
      expect([error.message, ...site.context.lines].join())
        .to.contain(host.url)
        .and.not.contain('do-not-print-me');
    });
  });
});
