import { gunzipSync } from 'node:zlib';
import { isUtf8 } from 'node:buffer';

/** Of one file or value when it is unpacked, in bytes. Files of machine configurations have some kilobytes. */
const largest = 16 * 1024 * 1024;

/** Returns the text in a data URL, unpacked if it is gzip; undefined for another text, and for content that is no text. Throws RangeError above 16 MiB. */
export function readDataUrl(source: string): string | undefined {
  const [, encoding, data = ''] = /^data:[^,]{0,200}?(;base64)?,(.*)$/s.exec(source) ?? [];
  if (!source.startsWith('data:')) return undefined;
  return encoding === undefined ? readBytes(Buffer.from(decodePercent(data), 'latin1')) : readBase64(data);
}

/** Returns the text in a base64 value, unpacked if it is gzip; undefined for content that is no text. Throws RangeError above 16 MiB. */
export function readBase64(data: string): string | undefined {
  return readBytes(Buffer.from(data, 'base64'));
}

function readBytes(bytes: Buffer): string | undefined {
  const content = bytes[0] === 0x1f && bytes[1] === 0x8b ? unpack(bytes) : bytes;
  return content && isUtf8(content) ? content.toString('utf8') : undefined;
}

function unpack(bytes: Buffer): Buffer | undefined {
  try {
    return gunzipSync(bytes, { maxOutputLength: largest });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ERR_BUFFER_TOO_LARGE') return undefined;
    throw new RangeError('it has more than 16 MiB when it is unpacked', { cause });
  }
}

/** Decodes each `%41` to a byte, as one character each; a malformed one stays. */
function decodePercent(text: string): string {
  return Buffer.from(text, 'utf8')
    .toString('latin1')
    .replace(/%([0-9a-fA-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}
