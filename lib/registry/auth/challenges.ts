import { Parse_WWW_Authenticate } from 'oci-registry-client/build/www-authenticate.js';
import { PluginError } from '../../errors.ts';

/** How a registry wants its users to log in. */
export type Challenge =
  | { readonly scheme: 'basic' }
  | {
      readonly scheme: 'bearer';
      /** Where tokens are given out. */
      readonly realm: URL;
      /** The name of the registry at the token server; '' where it has none. */
      readonly service: string;
      /** What the request needed, by the registry’s account; '' where it does not say. */
      readonly scope: string;
    };

/** What is longer was made to keep a reader busy. */
const lengthLimit = 8 * 1024;

/**
 * Reads a WWW-Authenticate header (RFC 9110, 11.6.1) with one challenge or several, and takes Bearer before Basic. Throws
 * `server-error`, naming the registry, when it offers neither or its token server has no http or https address.
 */
export function parseChallenge(header: string, registry: string): Challenge {
  const challenges = splitChallenges(header.slice(0, lengthLimit));
  const offered = (scheme: string) => challenges.find((challenge) => schemeOf(challenge) === scheme);
  const bearer = offered('bearer');
  const fields = bearer === undefined ? {} : fieldsOf(bearer);
  const realm = URL.parse(fields['realm'] ?? '');
  if (realm && ['http:', 'https:'].includes(realm.protocol)) {
    return { scheme: 'bearer', realm, service: fields['service'] ?? '', scope: fields['scope'] ?? '' };
  }
  if (offered('basic') !== undefined) return { scheme: 'basic' };
  const offers = challenges.map(schemeOf).join(', ') || 'nothing';
  const why = bearer === undefined ? `offers ${offers}` : 'names no token server';
  throw new PluginError('server-error', `${registry} requires a login that is neither Basic nor Bearer: it ${why}`);
}

/** The challenges of a header, each in a text of its own: commas divide challenges as well as their fields. */
function splitChallenges(header: string): string[] {
  const challenges: string[][] = [];
  for (const [piece] of header.matchAll(/(?:"(?:\\.|[^"\\])*"|[^",])+/g)) {
    const part = piece.trim().replace(/\s*=\s*/, '=');
    if (part === '') continue;
    const begins = /^[\w!#$%&'*+.^`|~-]+(?:\s|$)/.test(part);
    if (begins) challenges.push([part]);
    else challenges.at(-1)?.push(part);
  }
  return challenges.map((parts) => parts.join(','));
}

function schemeOf(challenge: string): string {
  return /^\S+/.exec(challenge)?.[0].toLowerCase() ?? '';
}

/** The fields of one challenge under their names in lower case; none where it is malformed. */
function fieldsOf(challenge: string): Partial<Record<string, string>> {
  if (!/\s/.test(challenge)) return {};
  const { parms } = new Parse_WWW_Authenticate(challenge);
  return Object.fromEntries(Object.entries(parms).map(([name, value]) => [name.toLowerCase(), value]));
}
