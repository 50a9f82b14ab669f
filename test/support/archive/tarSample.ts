import { layOutTar, type TarEntry } from '../../../lib/content/archive/tarLayout.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { makeFile, makeHeader, makeLong, makePax, padBlocks, paxRecord, type HeaderValues } from './tarBytes.ts';

const manifest = '{"schemaVersion":2}';
const folder = 'v2/openshift/release';

/** Names in the sample that mutations use. */
export const sampleNames = {
  digest: digestOf(manifest),
  otherDigest: digestOf('blob'),
  folder,
  tag: `${folder}/manifests/4.12.4-x86_64`,
} as const;

const { digest, otherDigest, tag } = sampleNames;
const entries: readonly TarEntry[] = [
  { path: 'metadata.json', content: Buffer.from('{}\n') },
  { path: 'config/a.yaml', content: Buffer.from('kind: ConfigMap\n') },
  { path: `config/${'a'.repeat(90)}/${'b'.repeat(110)}.yaml`, content: Buffer.from('long') },
  { path: `${folder}/manifests/${digest}`, content: Buffer.from(manifest) },
  { path: tag, target: digest },
  { path: `${folder}/blobs/${otherDigest}`, content: Buffer.alloc(700, 'b') },
  { path: `${folder}/blobs/${digestOf('')}`, content: Buffer.alloc(0) },
];

/** The entries of a small bundle, each with its headers, in the forms of this program, GNU tar and bsdtar. */
export const sampleParts: readonly (readonly Buffer[])[] = [
  layOutTar(entries).entries.map(({ entry, header }) =>
    Buffer.concat([header, padBlocks('content' in entry ? entry.content : '')]),
  ),
  repack('./', { magic: 'ustar  \0', uname: 'root', gname: 'root', uid: '0001750\0' }),
  repack('', { major: '000000 \0', minor: '000000 \0', mode: '000640 \0' }),
];

/** Returns the small bundle in the form of this program. */
export function sampleTar(): Buffer {
  return Buffer.concat([...(sampleParts[0] ?? []), Buffer.alloc(1024)]);
}

function repack(prefix: './' | '', values: HeaderValues): Buffer[] {
  const makeFolder = (name: string): Buffer => makeHeader({ ...values, name, type: '5', mode: '0000755\0' });
  return [
    makeFolder(prefix === '' ? 'v2/' : './'),
    makeFolder(`${prefix}config/`),
    ...entries.map((entry) => {
      const name = prefix + entry.path;
      const isLong = name.length > 100;
      const long =
        prefix === '' ? makePax(paxRecord('path', name) + paxRecord('mtime', '315532800.5')) : makeLong('L', name);
      const link = 'target' in entry && { target: entry.target, type: '2' };
      const content = 'content' in entry ? String(entry.content) : '';
      const main = makeFile(name.slice(0, 100), content, { ...values, ...link });
      return Buffer.concat(isLong ? [long, main] : [main]);
    }),
  ];
}
