/** What stands in place of a secret. */
export const redacted = 'REDACTED';

/**
 * Replaces user names and passwords in the URLs of a text, also those with an `@`, a quote or a slash in the password.
 * `docker://host:5000/name@sha256:…` has none.
 */
export function withoutUrlPasswords(text: string): string {
  if (!text.includes('://')) return text;
  return text.replace(
    /(?<=:\/\/)(?:(?!:\/\/)[^\s/?#])*@|(?<=:\/\/)[^\s:/?#@]*:(?!\d{1,5}[/?#])(?:(?!:\/\/)\S)*@(?!sha\d+:)/g,
    `${redacted}@`,
  );
}
