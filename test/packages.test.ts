import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { platforms } from '../.config/krew.ts';
import lock from '../package-lock.json' with { type: 'json' };
import manifest from '../package.json' with { type: 'json' };
import { runSuccessfully } from './support/peers.ts';

interface Entry {
  /** The name, if it differs from that of the folder. */
  readonly name?: string;
  readonly version?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

const entries: Readonly<Record<string, Entry | undefined>> = lock.packages;

/** Returns the path in the lock file of the package that another package gets by a name. */
function resolve(from: string, name: string): string | undefined {
  const place = [from, 'node_modules', name].filter((part) => part !== '').join('/');
  if (entries[place]) return place;
  return from === '' ? undefined : resolve(from.replace(/\/?node_modules\/(?:@[^/]+\/)?[^/]+$/, ''), name);
}

/** Returns the paths of a package and of all its dependencies. */
function broughtBy(place: string, found = new Set<string>()): Set<string> {
  if (found.has(place)) return found;
  found.add(place);
  for (const name of Object.keys(entries[place]?.dependencies ?? {})) {
    const below = resolve(place, name);
    if (below !== undefined) broughtBy(below, found);
  }
  return found;
}

describe('the table of packages in docs/packages.md', () => {
  it('has each package that is depended on, with how many it brings, and their number', async () => {
    const page = await readFile(fileURLToPath(new URL('../docs/packages.md', import.meta.url)), 'utf8');
    const rows = [...page.matchAll(/^\| ([\w@/-]+) +\| (\d+) +\|/gm)].map(([, name, count]) => [name, Number(count)]);
    const names = Object.keys(manifest.dependencies);
    const brought = names.map((name) => [name, broughtBy(`node_modules/${name}`).size]);
    expect(rows).to.have.deep.members(brought);
    const all = names.reduce((found, name) => broughtBy(`node_modules/${name}`, found), new Set<string>());
    expect(page).to.include(`depend on ${names.length} packages`).and.to.include(`bring ${all.size} in total`);
  });
});

describe('npm run sbom', () => {
  it('lists all that is installed to run the program, and the Node.js of each platform, once and with digests', async () => {
    const script = fileURLToPath(new URL('../.config/sbom.ts', import.meta.url));
    const bill = JSON.parse(await runSuccessfully(process.execPath, [script])) as {
      bomFormat: string;
      components: { 'bom-ref': string; name: string; version: string; purl: string; hashes?: { content: string }[] }[];
    };
    expect(bill.bomFormat).to.equal('CycloneDX');
    const all = Object.keys(manifest.dependencies).reduce(
      (found, name) => broughtBy(`node_modules/${name}`, found),
      new Set<string>(),
    );
    const expected = [...all].map((place) => {
      const { name = place.replace(/^.*node_modules\//, ''), version = '' } = entries[place] ?? {};
      return `${name}@${version}`;
    });
    const listed = bill.components.map(({ name, version }) => `${name}@${version}`);
    expect(listed).to.have.members([
      ...new Set(expected),
      ...platforms.map(({ runtime, pinned }) => {
        return `${runtime}@${pinned?.version ?? entries[`node_modules/${runtime}`]?.version ?? ''}`;
      }),
    ]);
    expect(new Set(bill.components.map((each) => each['bom-ref'])).size).to.equal(bill.components.length);
    for (const { name, hashes, purl } of bill.components) {
      expect(hashes?.[0]?.content, name).to.match(/^[0-9a-f]{128}$/);
      expect(purl).to.match(/^pkg:npm\/(%40[\w.-]+\/)?[\w.-]+@\d/);
    }
  });
});
