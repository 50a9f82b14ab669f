/** HTTP: connections, retries, proxies, certificates, and what their errors mean. */
export { clientTlsOf, deriveBearerToken, derivePreSharedKey, type TlsOptions } from './http/certificates.ts';
export { Connections } from './http/connections.ts';
export { isHttp, type FetchFile } from './http/fetchFile.ts';
export { watchIdleTime } from './http/idleTimeout.ts';
export type { ServerCertificate } from './http/listener.ts';
export { explainNetworkError, formatUrl, interrupted, networkCode, readBody } from './http/networkErrors.ts';
export { proxyFor, type Environment } from './http/proxy.ts';
export { RequestLimiter } from './http/requestLimiter.ts';
export { RetryBudget, TransientError, parseRetryAfter, type Clock, type RetryOptions } from './http/retry.ts';
