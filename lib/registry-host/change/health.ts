import { X509Certificate } from 'node:crypto';
import { request as requestPlain } from 'node:http';
import { request, type RequestOptions } from 'node:https';
import { isIP, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { checkServerIdentity, TLSSocket } from 'node:tls';
import { parseJson } from '#content/oci';
import type { Context } from '#context';
import { messageOf, PluginError } from '#errors';
import { fieldsAt } from '#fields';
import type { HostCertificates } from '../certificates/certificates.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { publishesOf } from '../detect/podmanCommand.ts';

/** Where a registry listens on this host, and the certificate that it must have. */
export interface HealthCheck {
  readonly address: string;
  readonly port: number;
  /** The expected host name or address in its certificate. */
  readonly host: string;
  /** Whether it serves TLS instead of HTTP. */
  readonly isTls: boolean;
  /** The trusted CAs, in PEM; undefined behind a proxy, for which only `certificate` is needed. */
  readonly authorities: string | undefined;
  /** The expected certificate, in PEM. */
  readonly certificate: string | undefined;
}

const timeout = 10_000;

/** Returns the health check of an installation, at the address that its pod publishes. */
export function healthCheckOf(
  { installation, commands }: DetectedInstallation,
  { server, authority }: HostCertificates,
): HealthCheck {
  const [publish] = [commands.pause, commands.quay].flatMap((command) => publishesOf(command, installation.servesTls));
  const bound = /^\[?([^\]]+?)\]?:\d+:\d+/.exec(publish?.value ?? '')?.[1] ?? '';
  const address = ownAddressOf(bound, networkInterfaces());
  const { servesTls, externalTls } = installation;
  return {
    address,
    port: installation.port.value,
    host: installation.host.value,
    isTls: servesTls,
    authorities: externalTls ? undefined : (authority ?? server),
    certificate: servesTls ? server : undefined,
  };
}

/**
 * Returns an address at which the host reaches a port that is published at `bound`, the address of `--publish`; empty
 * for all of IPv4. For all of IPv6 it is one of the host, because the kernel forwards nothing from ::1 to a container
 * of root.
 */
export function ownAddressOf(bound: string, interfaces: ReturnType<typeof networkInterfaces>): string {
  if (bound !== '::') return isIP(bound) && bound !== '0.0.0.0' ? bound : '127.0.0.1';
  const addresses = Object.values(interfaces).flat();
  const own = addresses.find((each) => each?.family === 'IPv6' && !each.internal && each.scopeid === 0);
  return own?.address ?? '::1';
}

/**
 * Checks the health once: `/health/instance` reports all services as healthy, `/v2/` responds, and TLS serves the
 * certificate file, valid, for the host, and from its CA. Returns the problem; undefined if it is healthy.
 */
async function findHealthProblem(check: HealthCheck, signal: AbortSignal): Promise<string | undefined> {
  try {
    const { status, body } = await get(check, '/health/instance', signal);
    const services = Object.entries(readServices(body));
    const unhealthy = services.filter(([, isHealthy]) => isHealthy !== true);
    if (unhealthy.length > 0) return `not healthy: ${unhealthy.map(([name]) => name).join(', ')}`;
    if (status !== 200) return `/health/instance answers ${status}`;
    // Another server may answer at this port, such as a proxy with a page of its own.
    if (services.length === 0) return '/health/instance answers 200, but names no services';
    const { status: protocol } = await get(check, '/v2/', signal);
    return protocol === 200 || protocol === 401 ? undefined : `/v2/ answers ${protocol}`;
  } catch (error) {
    return messageOf(error);
  }
}

/**
 * Checks the health of a registry before a change. Throws `not-ready` if it is not healthy, unless `force`, or if its
 * certificates are the problem, because they are renewed.
 */
export async function requireHealth(
  detected: DetectedInstallation,
  certificates: HostCertificates,
  force: boolean,
  { log, signal }: Context,
): Promise<boolean> {
  const problem = await findHealthProblem(healthCheckOf(detected, certificates), signal);
  if (problem === undefined) return true;
  if (signal.aborted) throw new PluginError('interrupted', 'interrupted');
  if (!force && certificates.status.problems.length === 0) {
    throw new PluginError('not-ready', `the registry is not healthy before the change: ${problem}`, {
      hint: 'Nothing was changed. Fix the registry first: see journalctl -u quay-app.service. Or force the change.',
      settings: ['force'],
    });
  }
  log('warn', `the registry is not healthy before the change: ${problem}`);
  return false;
}

/**
 * Waits until a registry is healthy in three consecutive checks. Throws `unreachable` with the last problem after
 * `seconds`, and `interrupted`.
 */
export async function waitForHealth(check: HealthCheck, seconds: number, signal: AbortSignal): Promise<void> {
  const end = Date.now() + seconds * 1000;
  for (let good = 0; ;) {
    const problem = await findHealthProblem(check, signal);
    good = problem === undefined ? good + 1 : 0;
    if (good === 3) return;
    if (signal.aborted) throw new PluginError('interrupted', 'interrupted');
    if (problem !== undefined && Date.now() > end) {
      throw new PluginError('unreachable', `the registry is not healthy after ${seconds} s: ${problem}`, {
        hint: 'See journalctl -u quay-app.service.',
      });
    }
    await sleep(problem === undefined ? 300 : 1000, undefined, { signal }).catch(() => undefined);
  }
}

function readServices(body: string): Record<string, unknown> {
  try {
    return fieldsAt(parseJson(body), 'data', 'services');
  } catch {
    return {};
  }
}

function get(
  { address, port, host, isTls, authorities, certificate }: HealthCheck,
  path: string,
  signal: AbortSignal,
): Promise<{ status: number; body: string }> {
  const headers = { host: `${isIPv6(host) ? `[${host}]` : host}:${port}` };
  const plain = { host: address, port, path, headers, signal, timeout, agent: false } satisfies RequestOptions;
  const secure: RequestOptions = {
    ...plain,
    ca: authorities,
    // Without CAs, the certificate itself is compared.
    rejectUnauthorized: authorities !== undefined || certificate === undefined,
    allowPartialTrustChain: true,
    servername: isIP(host) ? '' : host,
    checkServerIdentity: (_name, shown) => checkServerIdentity(host, shown),
  };
  return new Promise((resolve, reject) => {
    const sent = isTls ? request(secure) : requestPlain(plain);
    sent.on('response', (response) => {
      const { socket } = response;
      const shown = socket instanceof TLSSocket ? socket.getPeerCertificate().raw : undefined;
      if (certificate !== undefined && !shown?.equals(new X509Certificate(certificate).raw)) {
        sent.destroy(new Error('it serves another certificate than the file on the disk'));
      }
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        if (body.length < 65_536) body += chunk;
      });
      response.on('end', () => {
        resolve({ status: response.statusCode ?? 0, body });
      });
      response.on('error', reject);
    });
    sent.on('timeout', () => sent.destroy(new Error('timed out')));
    sent.on('error', reject);
    sent.end();
  });
}
