import { TransientError } from '#content/http';
import { parseJson } from '#content/oci';
import { PluginError, type ErrorCode } from '#errors';
import { isFields, type Fields } from '#fields';
import { shellCommand } from '#text';
import type { KubeTarget } from '../connection/kubeconfig.ts';

/** An error that the API server explained. `reason` is its term (`AlreadyExists`, `Conflict`, `Expired`). */
export class ApiError extends PluginError {
  readonly status: number;
  readonly reason: string;
  /** The object of the error: kind, name and causes. */
  readonly details: Fields;

  constructor(
    code: ErrorCode,
    message: string,
    options: { hint?: string | undefined; settings?: readonly string[]; status: number; body: Fields },
  ) {
    super(code, message, options);
    this.status = options.status;
    this.reason = typeof options.body['reason'] === 'string' ? options.body['reason'] : '';
    this.details = isFields(options.body['details']) ? options.body['details'] : {};
  }
}

const codes: Readonly<Record<number, ErrorCode | undefined>> = {
  400: 'invalid-object',
  401: 'unauthorized',
  403: 'denied',
  404: 'not-found',
  405: 'not-served',
  409: 'conflict',
  410: 'conflict',
  413: 'too-large',
  415: 'not-served',
  422: 'invalid-object',
  429: 'rate-limited',
};

/**
 * Returns the error for an unsuccessful response. It is a TransientError if a retry may succeed: for 429, and for 5xx
 * with a pause or after a read (`repeatable`). `retryAfter` is in milliseconds. `certificateExpiry`: when the client
 * certificate of the user expired, if it has.
 */
export function explainClusterRefusal(
  status: number,
  body: unknown,
  target: KubeTarget,
  {
    retryAfter,
    repeatable,
    certificateExpiry,
  }: { retryAfter: number | undefined; repeatable: boolean; certificateExpiry?: Date | undefined },
): PluginError {
  const answer = isFields(body) ? body : {};
  const stated = typeof answer['message'] === 'string' ? answer['message'].trim() : '';
  const where = `${target.server} (${target.name})`;
  if (status === 429 || (status >= 500 && (retryAfter !== undefined || repeatable))) {
    const code = status === 429 ? 'rate-limited' : 'server-error';
    const words = `${where} answered ${status}${stated === '' ? '' : `: ${stated}`}`;
    return new TransientError(code, words, { hint: 'Try again when the cluster is less busy.', retryAfter });
  }
  const code = codes[status] ?? 'server-error';
  if (code === 'server-error' && answer['kind'] !== 'Status') {
    return new PluginError('server-error', `${where} answered ${status}, and not as a Kubernetes API server does`, {
      hint: `Check the server of ${target.source}, and whether a proxy answers instead of it.`,
    });
  }
  const isExpired = code === 'unauthorized' && certificateExpiry !== undefined;
  const words = wordsOf(code, stated, status, where, target);
  const why = isExpired ? `: its client certificate expired at ${certificateExpiry.toISOString().slice(0, 19)}Z` : '';
  return new ApiError(code, words + why, {
    hint: isExpired ? expiredHint : hintOf(code, stated, target),
    settings: code === 'unauthorized' ? ['user', 'token'] : code === 'denied' ? ['context'] : [],
    status,
    body: answer,
  });
}

/** Returns the error for a failed connection to the cluster. */
export function explainConnection(error: PluginError, target: KubeTarget): PluginError {
  const certificate =
    (target.clusterName === ''
      ? 'Use a kubeconfig that has the authority of the cluster'
      : `Check certificate-authority-data of the cluster “${target.clusterName}” in ${target.source}`) +
    ', log in again with “oc login”, or name the certificate authority.';
  const network =
    `Check that the cluster is up and that ${new URL(target.server).host} of ${target.source} is its address; ` +
    'HTTPS_PROXY, NO_PROXY and proxy-url decide on the way to it.';
  if (error.code !== 'tls' && error.code !== 'unreachable') return error;
  return new PluginError(error.code, `the cluster ${target.name}: ${error.message}`, {
    hint: error.code === 'tls' ? certificate : network,
    settings: error.code === 'tls' ? ['clusterCertificateAuthority', 'insecureSkipTlsVerify'] : ['server'],
    cause: error.cause,
  });
}

/** Parses the JSON of a response. Throws `server-error` if it is not JSON. */
export function parseAnswer(text: string, target: KubeTarget): unknown {
  try {
    return parseJson(text);
  } catch {
    throw new PluginError('server-error', `${target.server} answered with something that is not JSON`, {
      hint: `Check the server of ${target.source}, and whether a proxy answers instead of it.`,
    });
  }
}

function wordsOf(
  code: ErrorCode,
  stated: string,
  status: number,
  where: string,
  { userName, source }: KubeTarget,
): string {
  if (code === 'unauthorized') {
    const user = userName === '' ? 'a request without credentials' : `the credentials of the user “${userName}”`;
    return `${where} refuses ${user} (${source})`;
  }
  if (stated === '') return `${where} answered ${status}`;
  return stated;
}

/** The control plane renews this kubeconfig itself (openshift/cluster-kube-apiserver-operator, node-kubeconfigs). */
const expiredHint =
  '“oc login” does not renew it. A control plane node has a kubeconfig that is renewed: lb-int.kubeconfig in ' +
  '/etc/kubernetes/static-pod-resources/kube-apiserver-certs/secrets/node-kubeconfigs. Or log in as another user.';

function hintOf(code: ErrorCode, stated: string, target: KubeTarget): string | undefined {
  if (code === 'unauthorized') return 'Log in again with “oc login”, or choose another user.';
  if (code === 'not-served') return `${target.name} does not allow that request.`;
  if (code !== 'denied') return undefined;
  const match =
    /User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)"(?: in the namespace "([^"]*)")?/.exec(
      stated,
    );
  if (!match) return 'This is the message of the cluster. Ask an administrator of the cluster.';
  const [, user = '', verb = '', resource = '', group = '', namespace] = match;
  const scope = namespace === undefined ? '' : shellCommand` -n ${namespace}`;
  const full = group === '' ? resource : `${resource}.${group}`;
  return (
    `“${user}” needs the right to ${verb} ${full}: check with ` +
    `“${shellCommand`oc auth can-i ${verb} ${full}`}${scope}”, or use the context of an administrator.`
  );
}
