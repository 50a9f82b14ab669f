import { isFields, type Fields } from '#fields';
import { redacted, withoutUrlPasswords } from '#text';

/** A kind of secret, and how often it was redacted. */
interface RedactionCount {
  readonly what: string;
  readonly count: number;
}

/** The forms of secrets that are known without a name, and what each is called. */
const forms: readonly (readonly [what: string, pattern: RegExp, replacement: string])[] = [
  [
    'private key',
    /-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:(?!-----BEGIN )[\s\S])*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----/g,
    redacted,
  ],
  // The end of a key may be missing in a log. Lines of a key are base64, perhaps after the prefix of a log.
  [
    'private key',
    /-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[^\S\n]*\S*(?:\n(?:[\w+/=\\]{4,}|[^\n]*\s[\w+/=\\]{32,})(?=\s|$))*/g,
    redacted,
  ],
  [
    'authorization header',
    /(?<![\w-])((?:proxy-)?authorization|x-[\w-]{0,40}(?:auth|token|key|secret)[\w-]{0,40}|(?:set-)?cookie)(\\?["']?\s*[:=]\s*)(?!\s*REDACTED)[^\r\n]+/gi,
    `$1$2${redacted}`,
  ],
  ['token', /(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*/g, redacted],
  ['token', /\bsha256~[\w-]+/g, redacted],
  [
    'token',
    /(?<![\w-])(?:gh[opsur]_|github_pat_|gl(?:pat|dt|rt|ptt|ft|oas|soat)-|xox[a-z]-|xapp-|ya29\.|hv[sbr]\.|dckr_(?:o|p)at_|npm_|hf_|sk-|sk_live_|rk_live_|pypi-|AIza|do[opr]_v1_|shp[a-z]{2}_|SG\.)[\w.-]{8,}/g,
    redacted,
  ],
  ['token', /(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{6,}/g, redacted],
  ['token', /\b(Bearer|Basic|Negotiate|Digest)(\s+)(?!REDACTED)[\w+/=.~-]{6,}/gi, `$1$2${redacted}`],
  ['password hash', /\$(?:2[abxy]|apr1|argon2\w*|[156y]|scrypt|pbkdf2[\w-]*)\$[\w./$=,+-]{8,}/g, redacted],
  [
    'signature of a URL',
    /([?&](?:sig|signature|x-amz-[\w-]+|x-goog-[\w-]+|access_token|code)=)(?!REDACTED)[^&\s"\\]+/gi,
    `$1${redacted}`,
  ],
  // A user and a password before a host without a scheme; the digest of an image is none.
  [
    'URL with credentials',
    /(?<![\w.%+/@-])[\w.%+-]{1,256}:[^\s@/"\\,]{1,256}@+(?!sha\d+:|REDACTED)(?=[\w[])/g,
    `${redacted}@`,
  ],
  [
    'command line option',
    /(?<![\w-])(-u|--user|--creds|--src-creds|--dest-creds|--proxy-user)([ \t=]+["']?)(?!REDACTED)([^\s:"']+):(?:(?<=["'][^\s:"']{1,99}:)[^"'\n]+|[^\s"]+)/g,
    `$1$2$3:${redacted}`,
  ],
  [
    'command line option',
    /\b(login|sshpass|mysql\w*|mariadb\w*|ldap\w+|htpasswd|redis-cli|curl)\b([^\n]{0,300}?\s-[apwPW])([ \t]*)(?!REDACTED)(?=\S*\d|\S{6})(?:"[^"\n]*"|'[^'\n]*'|[^\s"]+)/g,
    `$1$2$3${redacted}`,
  ],
  [
    'password or secret',
    /(<[\w.:-]*(?:password|passwd|passphrase|secret|token|apikey|credential)[\w.:-]*>)(?!REDACTED)[^<]+/gi,
    `$1${redacted}`,
  ],
  ['webhook', /(\bhooks\.[\w.-]+\/|\/webhooks?\/|outlook\.office\.com\/webhook)[^\s"]+/gi, `$1${redacted}`],
  ['password or secret', /\b(login\s+\S+\s+password\s+)(?!REDACTED)\S+/gi, `$1${redacted}`],
  [
    'password or secret',
    /\b((?:password|passphrase|passcode)\s+(?:is|was|to|of \S+ is)[: ]+["']?)(?!REDACTED|missing|wrong|not|required|empty|invalid|too|expired|set|unset)\S+/gi,
    `$1${redacted}`,
  ],
];

/** A word that may be base64: of JSON with credentials, or of a key. */
const base64 = /(?<![\w+/=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![\w+/=])/g;

/** Keys below a secret key whose values only refer to something, such as `secretKeyRef: {name, key}`. */
const reference =
  /^(?:name|namespace|key|kind|apiVersion|path|items|mode|defaultMode|optional|type|audience|secretName|fieldPath)$/;

/** Variables whose values are no secrets. All others are redacted, because any name may have one. */
const plainVariable =
  /^(?:HOME|HOSTNAME|PATH|LANG|TZ|NO_PROXY|HTTPS?_PROXY|no_proxy|https?_proxy|GO[A-Z]+|NODE_NAME|RELEASE_VERSION|(?:[A-Z]+_)*(?:IMAGE|VERSION|NAMESPACE|POD_NAME|NODE_NAME|POD_IP|HOST_IP|PORT|SERVICE_HOST|PROFILE|LOG_LEVEL|VERBOSITY|REPLICAS))$/;

/** Annotations and labels of OpenShift and Kubernetes. Those of others may have anything. */
const platformName =
  /^(?:[\w.-]*\.)?(?:openshift\.io|kubernetes\.io|k8s\.io|ovn\.org|coreos\.com)\/|^(?:app|component|k8s-app|name|tier|role|version|pod-template-generation|controller-revision-hash|pod-template-hash)$/;

/** Colors of a log, which may be within a name, and other characters that control a terminal. */
const colorCodes = /\x1b\[[\d;]*[A-Za-z]/g;
const controlCharacters = /[^\P{Cc}\n\t]/gu;

/** The annotation with the copy of an object that kubectl keeps. */
const lastApplied = 'kubectl.kubernetes.io/last-applied-configuration';

/** The deepest nesting of base64 in base64. */
const depthLimit = 3;

/**
 * Redacts the objects and logs of a cluster: objects by their structure, and then every text by the forms of secrets
 * and by the names of values. Counts what it redacts. Redacts too much rather than too little.
 */
export class Redactor {
  readonly #counts = new Map<string, number>();

  /** What was redacted until now, sorted by kind. */
  get counts(): RedactionCount[] {
    return [...this.#counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([what, count]) => ({ what, count }));
  }

  /** Returns a text without private keys, tokens, passwords, and credentials in URLs. */
  text(text: string): string {
    return this.#text(text.replace(colorCodes, '').replace(controlCharacters, '\ufffd'), 0);
  }

  /**
   * Returns an object without secrets: no data of Secrets, no copies that clients keep of it, and no values of secret
   * settings, variables, options and annotations.
   */
  object(value: unknown): unknown {
    if (Array.isArray(value)) return value.map((each) => this.object(each));
    if (typeof value === 'string') return this.text(value);
    if (!isFields(value)) return value;
    return Object.fromEntries(Object.entries(value).flatMap(([key, each]) => this.#field(value, key, each)));
  }

  #field(owner: Fields, key: string, value: unknown): [string, unknown][] {
    if (key === 'managedFields' || key === lastApplied) return [];
    if (owner['kind'] === 'Secret' && (key === 'data' || key === 'stringData')) {
      this.#count('data of a Secret');
      return [];
    }
    if (key === 'env' && Array.isArray(value)) return [[key, value.map((each) => this.#variable(each))]];
    if ((key === 'args' || key === 'command') && Array.isArray(value)) return [[key, this.#words(value)]];
    if ((key === 'annotations' || key === 'labels') && isFields(value)) return [[key, this.#annotations(value)]];
    // A parameter, a header or a field of a form: {name: password, value: X}.
    const label = owner['name'] ?? owner['key'];
    const isLabelled = /^(?:value|values|default|content|data)$/.test(key) && typeof label === 'string';
    const isSecret = isSecretName(key) || (isLabelled && isSecretName(label));
    return [[key, isSecret ? this.#secret(value) : this.object(value)]];
  }

  /** Redacts all texts below a secret key, except names of objects and paths. */
  #secret(value: unknown): unknown {
    if (Array.isArray(value)) return value.map((each) => this.#secret(each));
    if (isFields(value)) {
      const entries = Object.entries(value);
      return Object.fromEntries(
        entries.map(([key, each]) => [key, reference.test(key) ? this.object(each) : this.#secret(each)]),
      );
    }
    return typeof value === 'string' && value !== '' ? this.#replace('password or secret') : value;
  }

  #variable(value: unknown): unknown {
    if (!isFields(value) || typeof value['value'] !== 'string' || value['value'] === '') return this.object(value);
    const isPlain = plainVariable.test(String(value['name']));
    const text = isPlain ? this.text(value['value']) : this.#replace('environment variable');
    return { ...(this.object({ ...value, value: '' }) as Fields), value: text };
  }

  /** Redacts the values of options in a command: `--password=X`, `--password X`, `-p X`. */
  #words(words: readonly unknown[]): unknown[] {
    return words.map((word, index) => {
      if (typeof word !== 'string') return this.object(word);
      const before = words[index - 1];
      const option = typeof before === 'string' ? /^--?([\w.-]+)$/.exec(before)?.[1] : undefined;
      const isValue = option !== undefined && !word.startsWith('-');
      if (isValue && (isSecretName(option) || /^[paw]$/i.test(option))) return this.#replace('command line option');
      if (isValue && /^(?:u|user|\w*-?creds)$/.test(option) && word.includes(':'))
        return word.replace(/:.*/s, `:${this.#replace('command line option')}`);
      const [, name = '', value] = /^--?([\w.-]+)=(.+)$/s.exec(word) ?? [];
      if (value !== undefined && isSecretName(name)) return `--${name}=${this.#replace('command line option')}`;
      const short = /^-[pP](?=.*[^a-z-])(.{3,})$/s.exec(word);
      return short ? `-p${this.#replace('command line option')}` : this.text(word);
    });
  }

  #annotations(values: Fields): Fields {
    const entries = Object.entries(values).filter(([key]) => key !== lastApplied);
    return Object.fromEntries(
      entries.map(([key, value]) => {
        if (typeof value !== 'string' || value === '') return [key, value];
        const isPlain = platformName.test(key) && !isSecretName(key.replace(/^.*\//, ''));
        return [key, isPlain ? this.text(value) : this.#replace('annotation or label')];
      }),
    );
  }

  #text(text: string, depth: number): string {
    const urls = this.#without('URL with credentials', text, withoutUrlPasswords);
    const plain = forms.reduce(
      (all, [what, pattern, replacement]) => this.#apply(what, all, pattern, replacement),
      urls,
    );
    return this.#encoded(this.#named(plain), depth);
  }

  /** Redacts the values that have a secret name in a text: `password: X`, `{"token":"X"}`, `API_KEY=X`. */
  #named(text: string): string {
    const parts: string[] = [];
    let end = 0;
    for (const match of text.matchAll(namedValue)) {
      const [whole, named, option] = match;
      const name = named ?? option ?? '';
      if (match.index < end || !isSecretName(name)) continue;
      const value = findValue(text, match.index + whole.length, name);
      if (value.start >= value.end || text.startsWith(redacted, value.start)) continue;
      parts.push(text.slice(end, value.start), this.#replace('password or secret'));
      end = value.end;
    }
    return [...parts, text.slice(end)].join('');
  }

  /** Redacts base64 of text with secrets. */
  #encoded(text: string, depth: number): string {
    if (depth >= depthLimit) return text;
    return text.replace(base64, (word) => {
      const decoded = Buffer.from(word, 'base64').toString('latin1');
      if (!/^[\t\n\r\x20-\x7e]+$/.test(decoded)) return word;
      const inner = new Redactor();
      const isSecret = inner.#text(decoded, depth + 1) !== decoded || /^[\w.%+-]+:\S+$/.test(decoded);
      return isSecret ? this.#replace('base64 with a secret') : word;
    });
  }

  #apply(what: string, text: string, pattern: RegExp, replacement: string): string {
    return text.replace(pattern, (...groups: unknown[]) => {
      this.#count(what);
      return replacement.replace(/\$(\d)/g, (_, group: string) => String(groups[Number(group)]));
    });
  }

  #without(what: string, text: string, change: (text: string) => string): string {
    const changed = change(text);
    const count = changed.split(redacted).length - text.split(redacted).length;
    if (changed !== text) this.#count(what, Math.max(1, count));
    return changed;
  }

  #replace(what: string): string {
    this.#count(what);
    return redacted;
  }

  #count(what: string, count = 1): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + count);
  }
}

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
function isSecretName(name: string): boolean {
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
const namedValue =
  /(?<![\w.-])([\w.-]{2,100})(?:\\*["'])?[ \t]*(?:=>|:=|[:=]|%3[aAdD])[ \t]*(?:\r?\n[ \t]*(?=\\*["']))?|(?<![\w-])--?([\w-]{2,100})[ \t]+(?=[^\s-])/g;

/** The longest value, in characters. */
const longest = 64 * 1024;

/**
 * Finds the value at a place of a text: in quotes, in brackets, in an indented block of YAML, or up to a blank. A value
 * after `password:` may have blanks, and ends with the line.
 */
function findValue(text: string, from: number, name: string): { start: number; end: number } {
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
