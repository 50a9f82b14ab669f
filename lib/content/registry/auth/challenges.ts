import { Parse_WWW_Authenticate } from 'oci-registry-client/build/www-authenticate.js';
import { PluginError } from '../../../errors.ts';

/** The login that a registry requires. */
export type Challenge =
  | { readonly scheme: 'basic' }
  | {
      readonly scheme: 'bearer';
      /** The URL of the token server. */
      readonly realm: URL;
      /** The name of the registry at the token server; '' if it has none. */
      readonly service: string;
      /** The scope that the request needs, as the registry states it; '' if it states none. */
      readonly scope: string;
    };

/** The largest length of a header to parse. */
const lengthLimit = 8 * 1024;

/**
 * Parses a WWW-Authenticate header (RFC 9110, 11.6.1) with one or more challenges, and prefers Bearer to Basic. Throws
 * `server-error` with the registry if it offers neither, or if the token server has no http or https URL.
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

/** Splits a header into its challenges. Commas separate challenges and also their fields. */
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

/** Returns the fields of a challenge by their names in lower case; none if it is malformed. */
function fieldsOf(challenge: string): Partial<Record<string, string>> {
  if (!/\s/.test(challenge)) return {};
  const { parms } = new Parse_WWW_Authenticate(challenge);
  return Object.fromEntries(Object.entries(parms).map(([name, value]) => [name.toLowerCase(), value]));
}
