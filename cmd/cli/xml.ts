/** Formats an XML element. The content is XML already; attributes are escaped. */
export function tag(name: string, attributes: Readonly<Record<string, string | number>>, content = ''): string {
  const pairs = Object.entries(attributes).map(([key, value]) => ` ${key}="${escapeXml(String(value))}"`);
  return content === '' ? `<${name}${pairs.join('')}/>` : `<${name}${pairs.join('')}>${content}</${name}>`;
}

/** Formats an XML document with one root element. */
export function xmlDocument(root: string): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${root}\n`;
}

/** Escapes a text for XML, which has no control characters at all. */
export function escapeXml(text: string): string {
  const entities: Readonly<Record<string, string>> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&quot;',
    '\n': '&#10;',
  };
  const plain = text.toWellFormed().replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]/g, '\ufffd');
  return plain.replace(/[&<>"\n]/g, (char) => entities[char] ?? char);
}
