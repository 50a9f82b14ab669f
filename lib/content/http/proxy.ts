import { BlockList, isIP } from 'node:net';
import { PluginError } from '#errors';

/** Environment variables, from the caller of the library. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** A host to connect to, without the brackets of an IPv6 address. */
interface Target {
  readonly host: string;
  readonly port: string;
}

/**
 * Returns the proxy for a URL; undefined for a direct connection. Reads HTTPS_PROXY, HTTP_PROXY and NO_PROXY (or their
 * lower-case names) as `oc` does through Go's golang.org/x/net/http/httpproxy. Never uses a proxy for loopback
 * addresses. NO_PROXY has `*`, domains with or without a leading dot, addresses and CIDR ranges, each with an optional
 * port. Without the variable of the scheme, ALL_PROXY counts, as for curl. Throws `usage` with the name of a malformed
 * variable, and never quotes a password.
 */
export function proxyFor(url: URL, environment: Environment): URL | undefined {
  const own = url.protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY';
  const name = variable(environment, own) === '' ? 'ALL_PROXY' : own;
  const proxy = variable(environment, name);
  if (proxy === '') return undefined;
  const target = {
    host: bare(url.hostname).toLowerCase(),
    port: url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port,
  };
  if (isLoopback(target.host)) return undefined;
  const exceptions = variable(environment, 'NO_PROXY')
    .toLowerCase()
    .split(',')
    .map((each) => each.trim());
  for (const exception of exceptions) checkException(exception);
  if (exceptions.some((exception) => covers(exception, target))) return undefined;
  return parseProxy(proxy, name);
}

/** Returns whether a host (without a port, IPv6 with or without brackets) is `localhost` or a loopback address. */
export function isLoopback(host: string): boolean {
  const name = bare(host).toLowerCase();
  return name === 'localhost' || (isIP(name) !== 0 && contains('127.0.0.0', 8, name)) || contains('::1', 128, name);
}

function variable(environment: Environment, name: string): string {
  return (environment[name] || environment[name.toLowerCase()] || '').trim();
}

function parseProxy(text: string, name: string): URL {
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`);
  if (url !== null && url.hostname !== '' && ['http:', 'https:'].includes(url.protocol)) {
    if (isDecodable(url.username) && isDecodable(url.password)) return url;
    const message = `the environment variable ${name} has a percent sign in its user or password that is not encoded`;
    throw new PluginError('usage', message, { hint: 'Write it as %25, and other special characters in the same way.' });
  }
  // The message omits the value, which may have a password.
  if (/^socks/i.test(text)) {
    const message = `the environment variable ${name} names a SOCKS proxy: only http and https proxies are supported`;
    const hint =
      `Set ${name} to an http proxy, or unset it; NO_PROXY=HOST excludes one host. ` +
      'Only an API server can be behind a SOCKS proxy: set proxy-url in the kubeconfig.';
    throw new PluginError('usage', message, { hint });
  }
  throw new PluginError('usage', `the environment variable ${name} is not the URL of an http or https proxy`, {
    hint: `Set it to something like http://proxy.example.com:3128, or unset it.`,
  });
}

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

/** Refuses what no host can match: it would be silently ignored. Does not quote it, because it may have a password. */
function checkException(exception: string): void {
  const slash = exception.lastIndexOf('/');
  const [network, prefix] = [exception.slice(0, slash), exception.slice(slash + 1)];
  const family = isIP(network);
  const most = family === 4 ? 32 : 128;
  const isNetwork = family !== 0 && /^\d{1,3}$/.test(prefix) && Number(prefix) <= most;
  const why = /\s/.test(exception)
    ? 'an entry with blanks: separate its entries by commas'
    : exception.includes('://') || exception.includes('@')
      ? 'an entry that is a URL: name hosts only'
      : slash >= 0 && !isNetwork
        ? `an entry that is not a network: ${exception.slice(0, 100)}`
        : undefined;
  if (why === undefined) return;
  throw new PluginError('usage', `the environment variable NO_PROXY has ${why}`, {
    hint: 'It has hosts, domains, addresses and networks, such as .example.com,10.0.0.0/8.',
  });
}

function covers(exception: string, target: Target): boolean {
  if (exception === '') return false;
  if (exception === '*') return true;
  const slash = exception.lastIndexOf('/');
  const network = exception.slice(0, slash);
  if (slash > 0) return contains(network, Number(exception.slice(slash + 1)), target.host);

  const { host, port } = splitPort(exception);
  if (host === '' || (port !== '' && port !== target.port)) return false;
  if (isIP(host) !== 0) return contains(host, isIP(host) === 4 ? 32 : 128, target.host);
  const domain = host.startsWith('*.') ? host.slice(1) : host;
  return domain.startsWith('.')
    ? target.host.endsWith(domain)
    : target.host === domain || target.host.endsWith(`.${domain}`);
}

function splitPort(text: string): Target {
  const match = /^(\[[^\]]*\]|[^:]*)(?::([0-9]+))?$/.exec(text);
  return match ? { host: bare(match[1] ?? ''), port: match[2] ?? '' } : { host: bare(text), port: '' };
}

function contains(network: string, prefix: number, address: string): boolean {
  const family = isIP(network);
  const list = new BlockList();
  list.addSubnet(network, prefix, family === 4 ? 'ipv4' : 'ipv6');
  return list.check(address, isIP(address) === 4 ? 'ipv4' : 'ipv6');
}

function bare(host: string): string {
  return host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host;
}
