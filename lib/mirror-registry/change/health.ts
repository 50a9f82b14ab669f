import { X509Certificate } from 'node:crypto';
import { request as requestPlain } from 'node:http';
import { request, type RequestOptions } from 'node:https';
import { isIP, isIPv6 } from 'node:net';
import { checkServerIdentity, TLSSocket } from 'node:tls';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.ts';
import { messageOf, PluginError } from '../../errors.ts';
import type { HostCertificates } from '../certificates/certificates.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { publishesOf } from '../detect/podmanCommand.ts';

/** How to ask a registry whether it is well. */
export interface HealthQuestion {
  readonly address: string;
  readonly port: number;
  /** The name or address that its certificate must be for. */
  readonly host: string;
  /** It serves TLS, and no HTTP. */
  readonly isTls: boolean;
  /** Trusted authorities, in PEM; undefined if only a proxy talks to it, which needs no more than `certificate`. */
  readonly authorities: string | undefined;
  /** The certificate that it must present, in PEM. */
  readonly certificate: string | undefined;
}

const timeout = 10_000;

/** What to ask an installation, by its files. */
export function questionFor(
  { installation, commands }: DetectedInstallation,
  { server, authority }: HostCertificates,
): HealthQuestion {
  const [publish] = [commands.pause, commands.quay].flatMap((command) => publishesOf(command, installation.servesTls));
  const bound = /^\[?([^\]]+?)\]?:\d+:\d+/.exec(publish?.value ?? '')?.[1] ?? '';
  const address = isIP(bound) && bound !== '0.0.0.0' && bound !== '::' ? bound : isIPv6(bound) ? '::1' : '127.0.0.1';
  const { servesTls, externalTls } = installation;
  return {
    ...{ address, port: installation.port.value, host: installation.host.value, isTls: servesTls },
    authorities: externalTls ? undefined : (authority ?? server),
    certificate: servesTls ? server : undefined,
  };
}

/**
 * Asks once: `/health/instance` says that all services are well, `/v2/` answers, and TLS is what clients need: the certificate of the
 * disk, in date, for the host, by its authority. Returns what is wrong, undefined when nothing is.
 */
async function askHealth(question: HealthQuestion, signal: AbortSignal): Promise<string | undefined> {
  try {
    const { status, body } = await get(question, '/health/instance', signal);
    const services = readServices(body);
    const ill = Object.entries(services).filter(([, well]) => well !== true);
    if (ill.length > 0) return `it is not well: ${ill.map(([name]) => name).join(', ')}`;
    if (status !== 200) return `/health/instance answers ${status}`;
    const { status: protocol } = await get(question, '/v2/', signal);
    return protocol === 200 || protocol === 401 ? undefined : `/v2/ answers ${protocol}`;
  } catch (error) {
    return messageOf(error);
  }
}

/**
 * Asks whether a registry is well before it is changed, and returns the answer. Throws `not-ready` where it is not, unless `force`, or
 * unless its certificates are what is wrong with it, which are about to be renewed.
 */
export async function requireHealth(
  detected: DetectedInstallation,
  certificates: HostCertificates,
  force: boolean,
  { log, signal }: Context,
): Promise<boolean> {
  const problem = await askHealth(questionFor(detected, certificates), signal);
  if (problem === undefined) return true;
  if (signal.aborted) throw new PluginError('interrupted', 'interrupted');
  if (!force && certificates.status.problems.length === 0) {
    throw new PluginError('not-ready', `the registry is not well as it is: ${problem}`, {
      hint: `Nothing was changed. Mend that first: journalctl -u quay-app.service says more. With --force it is changed all the same.`,
    });
  }
  log('warn', `the registry is not well as it is: ${problem}`);
  return false;
}

/** Waits until a registry is well three times in a row. Throws `unreachable` with the last reason after `seconds`, and `interrupted`. */
export async function waitForHealth(question: HealthQuestion, seconds: number, signal: AbortSignal): Promise<void> {
  const end = Date.now() + seconds * 1000;
  for (let good = 0; ;) {
    const problem = await askHealth(question, signal);
    good = problem === undefined ? good + 1 : 0;
    if (good === 3) return;
    if (signal.aborted) throw new PluginError('interrupted', 'interrupted');
    if (problem !== undefined && Date.now() > end) {
      throw new PluginError('unreachable', `the registry did not come up within ${seconds} s: ${problem}`, {
        hint: 'journalctl -u quay-app.service says more.',
      });
    }
    await sleep(problem === undefined ? 300 : 1000, undefined, { signal }).catch(() => undefined);
  }
}

function readServices(body: string): Record<string, unknown> {
  try {
    return (JSON.parse(body) as { data: { services: Record<string, unknown> } }).data.services;
  } catch {
    return {};
  }
}

function get(
  { address, port, host, isTls, authorities, certificate }: HealthQuestion,
  path: string,
  signal: AbortSignal,
): Promise<{ status: number; body: string }> {
  const headers = { host: `${isIPv6(host) ? `[${host}]` : host}:${port}` };
  const plain = { host: address, port, path, headers, signal, timeout, agent: false } satisfies RequestOptions;
  const secure: RequestOptions = {
    ...plain,
    ca: authorities,
    // Without authorities, the certificate itself is compared.
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
        sent.destroy(new Error('it shows another certificate than the one on the disk'));
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
    sent.on('timeout', () => sent.destroy(new Error('it does not answer')));
    sent.on('error', reject);
    sent.end();
  });
}
