import { BlockList, isIP } from 'node:net';

/** The names for which a CA may issue certificates. */
export interface PermittedNames {
  /** Host names, each with all names below it. */
  readonly names: readonly string[];
  /** Networks such as `192.0.2.0/24` and `fd00::/64`. */
  readonly networks: readonly string[];
}

/** Returns the extension of a CA that permits only some names, in DER (RFC 5280, section 4.2.1.10). */
export function encodeNameConstraints({ names, networks }: PermittedNames): Buffer {
  const bases = [
    ...names.map((name) => encode(0x82, Buffer.from(name, 'ascii'))),
    ...networks.map((network) => encode(0x87, encodeNetwork(network))),
  ];
  const subtrees = bases.map((base) => encode(0x30, base));
  return encode(0x30, encode(0xa0, Buffer.concat(subtrees)));
}

/** Returns whether an address is in one of some networks. */
export function isWithin(address: string, networks: readonly string[]): boolean {
  const list = new BlockList();
  for (const network of networks) {
    const { base, length } = split(network);
    list.addSubnet(base, length, isIP(base) === 6 ? 'ipv6' : 'ipv4');
  }
  return list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

function encode(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

/** The address of a network and its mask, as bytes one after another. */
function encodeNetwork(network: string): Buffer {
  const { base, length } = split(network);
  const bytes = isIP(base) === 6 ? bytesOf6(base) : Buffer.from(base.split('.').map(Number));
  const mask = bytes.map((_, index) => (0xff00 >> Math.min(8, Math.max(0, length - index * 8))) & 0xff);
  return Buffer.concat([bytes.map((byte, index) => byte & (mask[index] ?? 0)), mask]);
}

function bytesOf6(address: string): Buffer {
  const [head = '', tail] = address.split('::');
  const groups = (text = ''): number[] => text.split(':').flatMap((each) => (each === '' ? [] : [parseInt(each, 16)]));
  const [first, last] = [groups(head), groups(tail)];
  const zeros = new Array<number>(8 - first.length - last.length).fill(0);
  return Buffer.from([...first, ...zeros, ...last].flatMap((group) => [group >> 8, group & 0xff]));
}

function split(network: string): { base: string; length: number } {
  const [base = '', length] = network.split('/');
  return { base, length: Number(length ?? (isIP(base) === 6 ? 128 : 32)) };
}
