import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import lock from '../package-lock.json' with { type: 'json' };
import manifest from '../package.json' with { type: 'json' };

interface Entry {
  readonly version?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

const entries: Readonly<Record<string, Entry | undefined>> = lock.packages;

/** The place in the lock file of what a package at another place gets by a name. */
function resolve(from: string, name: string): string | undefined {
  const place = [from, 'node_modules', name].filter((part) => part !== '').join('/');
  if (entries[place]) return place;
  return from === '' ? undefined : resolve(from.replace(/\/?node_modules\/(?:@[^/]+\/)?[^/]+$/, ''), name);
}

/** The places of a package and of everything that it brings. */
function broughtBy(place: string, found = new Set<string>()): Set<string> {
  if (found.has(place)) return found;
  found.add(place);
  for (const name of Object.keys(entries[place]?.dependencies ?? {})) {
    const below = resolve(place, name);
    if (below !== undefined) broughtBy(below, found);
  }
  return found;
}

describe('the table of packages in docs/architecture.md', () => {
  it('has each package that is depended on, with how many it brings, and their number', async () => {
    const page = await readFile(fileURLToPath(new URL('../docs/architecture.md', import.meta.url)), 'utf8');
    const rows = [...page.matchAll(/^\| ([\w@/-]+) +\| (\d+) +\|/gm)].map(([, name, count]) => [name, Number(count)]);
    const names = Object.keys(manifest.dependencies);
    const brought = names.map((name) => [name, broughtBy(`node_modules/${name}`).size]);
    expect(rows).to.have.deep.members(brought);
    const all = names.reduce((found, name) => broughtBy(`node_modules/${name}`, found), new Set<string>());
    expect(page)
      .to.match(/^Twelve packages are depended on/m)
      .and.to.include(`bring ${String(all.size)} in all`);
    expect(names).to.have.length(12);
  });
});
