import { decodeBase64 } from './strictJson.ts';

const block = /-----BEGIN ([A-Z0-9 ]+)-----[ \t]*\r?\n([A-Za-z0-9+/=\s]*?)-----END \1-----[ \t]*(?:\r?\n|$)/;

/** Returns the certificates in a text, and skips everything else, as Go does for pools of authorities. */
export function findCertificates(text: string): Buffer[] {
  return [...text.matchAll(new RegExp(block, 'g'))].flatMap(([, label, body]) =>
    label === 'CERTIFICATE' ? (decodeBody(body) ?? []) : [],
  );
}

/** Returns the certificates in a text that has nothing else; undefined for any other text. */
export function splitCertificates(text: string): Buffer[] | undefined {
  const certificates = findCertificates(text);
  const rest = text.replace(new RegExp(block, 'g'), '').trim();
  const count = text.split('-----BEGIN ').length - 1;
  return rest === '' && certificates.length === count ? certificates : undefined;
}

/** Returns the bytes of a text that is one block, and not even an empty line more; undefined for any other text. */
export function readBlock(text: string): Buffer | undefined {
  const [whole, , body] = block.exec(text) ?? [];
  return whole === text ? decodeBody(body) : undefined;
}

function decodeBody(body = ''): Buffer | undefined {
  return decodeBase64(body.replace(/[ \t]/g, ''));
}
