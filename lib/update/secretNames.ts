/** Parts of a name that make its value secret. */
const secretPart =
  /^(?:pass|passwords?|passwd|passphrases?|passcode|passkey|pwd|pw|secrets?|tokens?|credentials?|creds?|auths?|apikeys?|accesskeys?|privatekeys?|secretkeys?|sshkeys?|signingkeys?|encryptionkeys?|masterkeys?|dockerconfigjson|dockerconfig|dockercfg|kubeconfig|cookies?|session|sessionid|jwt|bearer|otp|salt|pat|webhook|dsn|connstr|connectionstring|nonce|seed|mnemonic)$/;
/** Parts that make the part `key` after them secret, and parts that end like a secret one: `PGPASS`, `htpasswd`. */
const secretKey =
  /^(?:api|app|access|private|secret|signing|sign|encryption|encrypt|shared|master|client|ssh|tls|ssl|account|storage|root|hmac|aes|rsa|host|psk|license|session|auth|deploy|service|data|db|user|admin)$/;
const secretEnd =
  /(?:password|passwd|passphrase|(?<!by|com|tres|en|sur)pass|pwd|secret|token|apikey|privatekey|accesskey|credentials?)$/;
/** The last parts of names whose values only refer to a secret, or describe it. */
const referring =
  /^(?:name|names|ref|refs|file|files|path|paths|dir|type|namespace|class|kind|policy|mode|expiration|seconds|length|size|count|limit|ttl|age|required|enabled|disabled|provider|issuer|audience|audiences|url|uri|version|revision|review|reviews|controller|manager|operator|signer|rotation)$/;

/** Returns whether the value of a setting, variable, option or header of this name is secret. */
export function isSecretName(name: string): boolean {
  const parts = name
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z\d]+/)
    .filter((part) => part !== '');
  if (parts.length > 1 && referring.test(parts.at(-1) ?? '')) return false;
  return parts.some(
    (part, index) =>
      secretPart.test(part) || secretEnd.test(part) || (/^keys?$/.test(part) && secretKey.test(parts[index - 1] ?? '')),
  );
}

/** A name, perhaps in quotes, and what separates it from its value. A line break is only before a value in quotes. */
export const namedValue =
  /(?<![\w.-])([\w.-]{2,100})(?:\\*["'])?[ \t]*(?:=>|:=|[:=]|%3[aAdD])[ \t]*(?:\r?\n[ \t]*(?=\\*["']))?|(?<![\w-])--?([\w-]{2,100})[ \t]+(?=[^\s-])/g;

/** The longest value, in characters. */
const longest = 64 * 1024;

/**
 * Finds the value at a place of a text: in quotes, in brackets, in an indented block of YAML, or up to a blank. A value
 * after `password:` may have blanks, and ends with the line.
 */
export function findValue(text: string, from: number, name: string): { start: number; end: number } {
  // Go prints a type and a length before some values.
  const at = from + (/^\([\w.*]+\) ?(?:\(len=\d+\) ?)?/.exec(text.slice(from, from + 64))?.[0].length ?? 0);
  const [, quote] = /^(\\*["'`])/.exec(text.slice(at, at + 16)) ?? [];
  if (quote !== undefined) return findQuoted(text, at, quote);
  const first = text.charAt(at);
  if (first === '{' || first === '[') return { start: at, end: findBracket(text, at) };
  const line = lineEnd(text, at);
  if (/^[|>][+-]?\d?\s*$/.test(text.slice(at, line))) return { start: at, end: findBlockEnd(text, at, line) };
  const isWhole = /:\s+$/.test(text.slice(Math.max(0, at - 4), at)) && /pass|secret/i.test(name);
  const rest = text.slice(at, Math.min(line, at + longest));
  const [value = ''] = (isWhole ? /^.*/ : /^[^\s"\\]+/).exec(rest) ?? [];
  return { start: at, end: at + value.trimEnd().length };
}

function findQuoted(text: string, at: number, quote: string): { start: number; end: number } {
  const start = at + quote.length;
  const mark = quote.at(-1) ?? '';
  const limit = Math.min(text.length, start + longest);
  for (let end = text.indexOf(quote, start); end >= 0 && end < limit; end = text.indexOf(quote, end + quote.length)) {
    // In YAML, two single quotes are one.
    if (quote === "'" && text.startsWith("''", end)) end += 1;
    else if (mark !== '"' || text.charAt(end - 1) !== '\\') return { start, end };
  }
  return { start, end: Math.min(lineEnd(text, start), limit) };
}

function findBracket(text: string, at: number): number {
  let depth = 0;
  const limit = Math.min(text.length, at + longest);
  for (let end = at; end < limit; end++) {
    const char = text.charAt(end);
    if (char === '{' || char === '[') depth += 1;
    else if (char === '}' || char === ']') depth -= 1;
    if (depth === 0) return end + 1;
  }
  return limit;
}

function findBlockEnd(text: string, at: number, line: number): number {
  const lineStart = text.lastIndexOf('\n', at - 1) + 1;
  const indent = /^[ \t-]*/.exec(text.slice(lineStart, at))?.[0].length ?? 0;
  let end = line;
  while (end < text.length && end - at < longest) {
    const next = lineEnd(text, end + 1);
    const content = text.slice(end + 1, next);
    if (content.trim() !== '' && (/^[ \t]*/.exec(content)?.[0].length ?? 0) <= indent) break;
    end = next;
  }
  return end;
}

function lineEnd(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  return end < 0 ? text.length : end;
}
