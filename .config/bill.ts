/**
 * The software bill of materials, CycloneDX 1.5: the packages that `npm ci --omit=dev` installs by package-lock.json,
 * and the Node.js of platforms. `npm sbom --omit=dev` leaves out packages that development needs too, such as semver.
 */
import lock from '../package-lock.json' with { type: 'json' };
import manifest from '../package.json' with { type: 'json' };
import type { Platform } from './krew.ts';

interface Entry {
  /** The name, if it differs from the folder because another package is in its place. */
  readonly name?: string;
  readonly version?: string;
  readonly integrity?: string;
  readonly license?: string;
  readonly dev?: boolean;
  readonly optional?: boolean;
}

const entries: Readonly<Record<string, Entry | undefined>> = lock.packages;

const packages = Object.entries(entries)
  .filter(([place, entry]) => place !== '' && !entry?.dev && !entry?.optional)
  .map(([place, entry = {}]) => ({ name: place.replace(/^.*node_modules\//, ''), ...entry }));
function describe({ name, version = '', integrity = '', license }: Entry & { readonly name: string }): object {
  const purl = `pkg:npm/${name.replace('@', '%40')}@${version}`;
  const [, hash = ''] = /^sha512-(.+)$/.exec(integrity) ?? [];
  return {
    type: 'library',
    'bom-ref': purl,
    name,
    version,
    purl,
    ...(hash !== '' && { hashes: [{ alg: 'SHA-512', content: Buffer.from(hash, 'base64').toString('hex') }] }),
    ...(license !== undefined && { licenses: [{ expression: license }] }),
  };
}

/** Returns the bill for executables of some platforms. */
export function billOf(platforms: readonly Platform[]): string {
  const runtimes = platforms.map(({ runtime, pinned }) => ({
    name: runtime,
    ...entries[`node_modules/${runtime}`],
    ...pinned,
  }));
  // One package in several places is one component.
  const components = new Map(
    [...packages, ...runtimes].map((each) => [`${each.name}@${each.version ?? ''}`, describe(each)]),
  );
  const { name, version, license } = manifest;
  const component = {
    type: 'application',
    'bom-ref': `${name}@${version}`,
    name,
    version,
    licenses: [{ expression: license }],
  };
  const bill = {
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: { component },
    components: [...components].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each),
  };
  return `${JSON.stringify(bill, null, 2)}\n`;
}
