import { PluginError } from '../../../lib/errors.ts';

const factors: Readonly<Record<string, number>> = {
  '': 1,
  k: 1000,
  K: 1000,
  M: 1000 ** 2,
  G: 1000 ** 3,
  T: 1000 ** 4,
  Ki: 1024,
  Mi: 1024 ** 2,
  Gi: 1024 ** 3,
  Ti: 1024 ** 4,
};

/**
 * Parses a size of Kubernetes: `3900M` is in powers of 1000, `3900Mi` in powers of 1024, a number without a unit in
 * bytes. A `B` may follow. Throws `usage` for other texts, and for less than a byte.
 */
export function parseSize(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,15}(?:\.\d{1,6})?)([A-Za-z]{0,2}?)B?$/.exec(text) ?? [];
  const factor = factors[unit];
  const bytes = factor === undefined ? 0 : Math.floor(Number(digits) * factor);
  if (bytes >= 1 && Number.isSafeInteger(bytes)) return bytes;
  throw new PluginError('usage', `“${text}” is not a size`, {
    hint: 'A size is a number with M or G (powers of 1000), Mi or Gi (powers of 1024), or of bytes: 3900M.',
  });
}
