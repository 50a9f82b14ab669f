import { isFields } from '../fields.ts';

const redacted = 'REDACTED';

/** Patterns of secrets in logs and objects, and what replaces each. */
const secrets: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----/g, redacted],
  // Tokens of accounts (JWT).
  [/\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g, redacted],
  [/\b(Bearer|Basic)\s+(?!REDACTED)[\w+/=.~-]{6,}/gi, `$1 ${redacted}`],
  // Users and passwords in URLs, such as those of proxies.
  [/(\b[a-z][\w+.-]*:\/\/)[^\s/"'@]+@/gi, `$1${redacted}@`],
  [
    /((?:password|passwd|token|secret|auth|credential|api[-_]?key)\\?["']?\s*[:=]\s*\\?["']?)[^\s"'\\,;{}[\]]{4,}/gi,
    `$1${redacted}`,
  ],
];

/** Names of settings whose values are secret. */
const secretName = /password|passwd|token|secret|credential|(?:^|[_-])auth$|[_-]key$/i;

/** Returns a text without secrets: private keys, tokens, passwords, and credentials in URLs. */
export function redactText(text: string): string {
  return secrets.reduce((all, [pattern, replacement]) => all.replace(pattern, replacement), text);
}

/**
 * Returns an object of a cluster without secrets: without values of variables with a secret name, without data of
 * Secrets, and without the copies that clients keep of it.
 */
export function redactObject(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(redactObject);
  if (typeof value === 'string') return redactText(value);
  if (!isFields(value)) return value;
  const isSecret = value['kind'] === 'Secret';
  const isSecretVariable = typeof value['name'] === 'string' && secretName.test(value['name']);
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, each]) => {
      if (key === 'managedFields' || key === 'kubectl.kubernetes.io/last-applied-configuration') return [];
      if (isSecret && (key === 'data' || key === 'stringData')) return [];
      if (isSecretVariable && key === 'value') return [[key, redacted]];
      return [
        [key, typeof each === 'string' && secretName.test(key) && !/name$/i.test(key) ? redacted : redactObject(each)],
      ];
    }),
  );
}
