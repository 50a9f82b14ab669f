import type { BundledCatalog, CatalogRequest } from '#bundle/create';
import { PluginError } from '#errors';
import type { OperatorRequest, SelectedPackage } from '#release/catalog';
import { isRange } from '#release/version';
import type { Arguments } from '../../cli/command.ts';
import { checkImage } from '../../cli/values.ts';

/** The options of `create` for operators. */
export const catalogOptions = {
  catalog: {
    type: 'string',
    repeatable: true,
    describe: 'Catalog image to take operators from, such as the redhat-operator-index of registry.redhat.io',
    check: checkImage,
  },
  operator: {
    type: 'string',
    needs: ['catalog'],
    repeatable: true,
    describe:
      'Operator to add: NAME[@CHANNEL][:VERSION], or * for all channels; a plain version is the installed one, ' +
      'whose updates are added; =VERSION or a range such as “>=0.1.0 <0.2.0”',
    check: (text: string) => void parseOperator(text),
  },
  'skip-missing-operator-images': {
    type: 'boolean',
    needs: ['catalog'],
    describe: 'Leave out images of operators that are missing or have invalid names, and note it in the bundle',
  },
} as const;

/** Returns the catalogs and operators that `catalogOptions` request. */
export function requestOperators({
  catalog,
  operator,
  skipMissingOperatorImages: skipMissing,
}: Arguments<typeof catalogOptions>): CatalogRequest {
  return { catalogs: catalog, operators: operator.map(parseOperator), skipMissing };
}

/**
 * Parses `NAME`, `NAME@CHANNEL`, and with a version: `:1.10.0` (or the name of a bundle) is installed, and what begins
 * with an operator is a range to take. Other texts, such as `1.10`, could mean both.
 */
function parseOperator(text: string): OperatorRequest {
  const [, name, channel, version] = /^([\w.-]+)(?:@([^:@\s]+))?(?::(.+))?$/.exec(text) ?? [];
  if (name === undefined) throw notOperator(text, 'it has no package name, or no channel after the @');
  if (version === undefined) return { name, channel };
  if (/^[=<>~^!]/.test(version)) {
    if (isRange(version)) return { name, channel, range: version };
    throw notOperator(text, `“${version}” is not a range of versions`);
  }
  if (/^(?:v?\d+\.\d+\.\d+(?:[-+][\w.+-]+)?|[A-Za-z][\w.+-]*)$/.test(version))
    return { name, channel, installed: version };
  throw notOperator(text, `“${version}” is neither a full version nor a range that begins with =, <, >, ~ or ^`);
}

function notOperator(text: string, why: string): PluginError {
  return new PluginError('usage', `“${text}” is not an operator: ${why}`, {
    hint:
      'Give its package name (web-terminal), with a channel (web-terminal@fast), with the installed version ' +
      '(web-terminal@fast:1.10.0), or with the versions to add (“web-terminal@fast:=1.10.0”, ' +
      '“web-terminal@fast:>=1.9.0 <1.11.0”).',
  });
}

/** Returns the catalogs of a bundle as rows of a summary. */
export function describeCatalogs(catalogs: readonly BundledCatalog[]): string[][] {
  return catalogs.flatMap(({ name, packages }) =>
    packages.map((selected, index) => [index === 0 ? 'Catalog' : '', `${name}: ${describePackage(selected)}`]),
  );
}

function describePackage({ name, channels, bundles, neededBy }: SelectedPackage): string {
  const versions = bundles.map(({ version }) => version).join(', ');
  const reason = neededBy.length === 0 ? '' : `, needed by ${neededBy.join(', ')}`;
  return `${name} ${versions} (${[...channels.keys()].join(', ')}${reason})`;
}

/** Returns catalogs for `--output`, with the selected channels and versions of each operator. */
export function toPlainCatalogs(catalogs: readonly BundledCatalog[]): object[] {
  return catalogs.map(({ name, original, image, packages, missing }) => ({
    name,
    original,
    image,
    operators: packages.map((selected) => ({
      name: selected.name,
      channels: [...selected.channels.keys()],
      versions: selected.bundles.map(({ version }) => version),
      neededBy: selected.neededBy,
    })),
    missing,
  }));
}
