import { expect } from 'chai';
import { isLoopback, proxyFor } from '../../../lib/content/http/proxy.ts';

const proxy = 'http://proxy.example.com:3128';

describe('proxyFor', () => {
  const through = (url: string, noProxy = '') =>
    proxyFor(new URL(url), { HTTPS_PROXY: proxy, HTTP_PROXY: proxy, NO_PROXY: noProxy })?.host;

  it('connects directly if no variable is set', () => {
    expect(proxyFor(new URL('https://quay.io/v2/'), {})).to.equal(undefined);
    expect(proxyFor(new URL('https://quay.io/v2/'), { HTTP_PROXY: proxy, HTTPS_PROXY: '' })).to.equal(undefined);
  });

  it('takes the variable of the URL’s scheme, upper case before lower case', () => {
    const environment = { HTTPS_PROXY: 'http://upper:1', https_proxy: 'http://lower:2', http_proxy: 'plain:3' };
    expect(proxyFor(new URL('https://quay.io/'), environment)?.host).to.equal('upper:1');
    expect(proxyFor(new URL('http://quay.io/'), environment)?.href).to.equal('http://plain:3/');
  });

  it('keeps the user and the password of the proxy', () => {
    const url = proxyFor(new URL('https://quay.io/'), { HTTPS_PROXY: 'user:p%40ss@proxy:3128' });
    expect([url?.username, url?.password, url?.host]).to.deep.equal(['user', 'p%40ss', 'proxy:3128']);
  });

  it('never proxies loopback', () => {
    for (const host of ['localhost:5000', '127.0.0.1', '127.8.9.1:5000', '[::1]:5000']) {
      expect(through(`https://${host}/`), host).to.equal(undefined);
    }
    expect(through('https://localhost.example.com/')).to.equal('proxy.example.com:3128');
  });

  const cases: [exceptions: string, url: string, direct: boolean][] = [
    ['*', 'https://quay.io/', true],
    ['example.com', 'https://example.com/', true],
    ['example.com', 'https://a.b.example.com/', true],
    ['example.com', 'https://notexample.com/', false],
    ['.example.com', 'https://a.example.com/', true],
    ['.example.com', 'https://example.com/', false],
    ['*.example.com', 'https://a.example.com/', true],
    ['EXAMPLE.com', 'https://Example.COM/', true],
    ['other.org, example.com ,', 'https://example.com/', true],
    ['example.com:5000', 'https://example.com:5000/', true],
    ['example.com:5000', 'https://example.com/', false],
    ['example.com:443', 'https://example.com/', true],
    ['example.com:80', 'http://example.com/', true],
    [':443', 'https://example.com/', false],
    ['10.0.0.7', 'https://10.0.0.7:5000/', true],
    ['10.0.0.7:5000', 'https://10.0.0.7:5000/', true],
    ['10.0.0.7:5001', 'https://10.0.0.7:5000/', false],
    ['10.0.0.7', 'https://110.0.0.7/', false],
    ['10.0.0.0/8', 'https://10.200.3.4/', true],
    ['10.0.0.0/8', 'https://11.0.0.1/', false],
    ['10.0.0.0/8', 'https://registry.example.com/', false],
    ['fd00::/8', 'https://[fd00::12]:5000/', true],
    ['fd00::/8', 'https://[fe80::12]/', false],
    ['[fd00::12]:5000', 'https://[fd00::12]:5000/', true],
    ['fd00::12', 'https://[fd00:0:0::12]/', true],
  ];
  for (const [exceptions, url, direct] of cases) {
    it(`${direct ? 'reaches' : 'does not reach'} ${url} directly with NO_PROXY=${exceptions}`, () => {
      expect(through(url, exceptions)).to.equal(direct ? undefined : 'proxy.example.com:3128');
    });
  }

  it('refuses a value that is not an http proxy, without showing it', () => {
    for (const value of ['ftp://user:secret@proxy', 'http://user:secret@', 'http://user:secret@host:99999']) {
      expect(() => proxyFor(new URL('https://quay.io/'), { HTTPS_PROXY: value }))
        .to.throw('the environment variable HTTPS_PROXY is not the URL of an http or https proxy')
        .with.property('code', 'usage');
    }
  });

  it('refuses a percent sign that is not encoded, and never shows the password', () => {
    for (const [name, value] of [
      ['HTTPS_PROXY', 'http://user:100%@proxy:3128'],
      ['https_proxy', 'us%er:x@proxy:3128'],
      ['ALL_PROXY', 'http://user:secret%zz@proxy'],
    ] as const) {
      expect(() => proxyFor(new URL('https://quay.io/'), { [name]: value }))
        .to.throw(`the environment variable ${name.toUpperCase()} has a percent sign in its user or password`)
        .with.property('hint')
        .that.contains('%25');
    }
  });

  it('refuses entries of NO_PROXY that match no host, and shows no password in them', () => {
    const cases = ['10.0.0.0/99', 'example.com/8', 'http://user:secret@example.com', 'a.example b.example'];
    for (const entry of cases)
      expect(() => through('https://10.0.0.1/', `localhost,${entry}`), entry)
        .to.throw('the environment variable NO_PROXY has an entry')
        .with.property('message')
        .that.does.not.contain('secret');
    expect(through('https://10.0.0.1/', ' .example.com , 10.1.0.0/16,fd00::/8,host:443,')).to.equal(
      'proxy.example.com:3128',
    );
  });

  it('takes ALL_PROXY if the variable of the scheme is not set', () => {
    const environment = { ALL_PROXY: 'http://all:1', HTTP_PROXY: 'http://plain:2' };
    expect(proxyFor(new URL('https://quay.io/'), environment)?.host).to.equal('all:1');
    expect(proxyFor(new URL('http://quay.io/'), environment)?.host).to.equal('plain:2');
    expect(() => proxyFor(new URL('https://quay.io/'), { all_proxy: 'socks5://proxy:1080' })).to.throw(
      'ALL_PROXY names a SOCKS proxy',
    );
  });

  it('names the alternative to a SOCKS proxy', () => {
    for (const value of ['socks5://user:secret@proxy:1080', 'socks5h://proxy', 'SOCKS4://proxy:1']) {
      expect(() => proxyFor(new URL('https://quay.io/'), { HTTPS_PROXY: value }))
        .to.throw('HTTPS_PROXY names a SOCKS proxy: only http and https proxies are supported')
        .with.property('hint')
        .that.contains('proxy-url')
        .and.does.not.contain('secret');
    }
  });
});

describe('isLoopback', () => {
  it('knows this machine by name and by address', () => {
    for (const host of ['localhost', 'LOCALHOST', '127.0.0.1', '127.255.0.1', '::1', '[::1]']) {
      expect(isLoopback(host), host).to.equal(true);
    }
    for (const host of ['localhost.example.com', '128.0.0.1', '::2', 'quay.io']) {
      expect(isLoopback(host), host).to.equal(false);
    }
  });
});
