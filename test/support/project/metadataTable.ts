import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** A row of the table in docs/trust.md: values of metadata.json, and what proves them. */
export interface MetadataRow {
  /** The paths, such as `blobs[].digest`. */
  readonly values: readonly string[];
  readonly proof: string;
  /** The functions that check them. */
  readonly functions: readonly string[];
}

/** Reads the table of the values of metadata.json in docs/trust.md. */
export function readMetadataTable(): MetadataRow[] {
  const page = readFileSync(fileURLToPath(new URL('../../../docs/trust.md', import.meta.url)), 'utf8');
  const [, section = ''] = page.split(/^## metadata\.json$/m);
  const [table = ''] = section.split(/^## /m);
  return [...table.matchAll(/^\| (`.*?) *\| (\w+) *\| (.*?) *\|/gm)].map(([, values = '', proof = '', by = '']) => ({
    values: quoted(values),
    proof,
    functions: quoted(by).filter((name) => !name.includes(' ')),
  }));
}

/** Returns the paths of the values that are claims. */
export function claimedValues(): ReadonlySet<string> {
  return new Set(readMetadataTable().flatMap(({ values, proof }) => (proof === 'claim' ? values : [])));
}

function quoted(text: string): string[] {
  return [...text.matchAll(/`([^`]+)`/g)].map(([, word = '']) => word);
}
