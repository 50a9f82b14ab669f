const replacements: Readonly<Record<string, string>> = {
  ...{ '“': '"', '”': '"', '‘': "'", '’': "'", '…': '...', '→': '->', '–': '-', '—': '-', '×': 'x', '·': '*' },
  ...{ '█': '#', '░': '.', '\ufffd': '?' },
};

/** Returns whether a terminal shows more than ASCII: its locale is UTF-8, and it is not the Linux console, which lacks most glyphs. */
export function showsUnicode(environment: NodeJS.ProcessEnv, platform: NodeJS.Platform = process.platform): boolean {
  const { TERM, LC_ALL, LC_CTYPE, LANG } = environment;
  // Windows has no such variables. On macOS, terminals of editors leave them out.
  const locale = LC_ALL || LC_CTYPE || LANG || (platform === 'linux' ? 'C' : 'UTF-8');
  return TERM !== 'linux' && /utf-?8/i.test(locale);
}

/** Replaces the signs of this program’s own texts that are not ASCII. Names of files and people stay. */
export function toAscii(text: string): string {
  return text.replace(/[\u0080-\uffff]/g, (sign) => replacements[sign] ?? sign);
}
