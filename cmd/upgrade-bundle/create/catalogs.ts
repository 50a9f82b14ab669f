import type { BundledCatalog, CatalogRequest } from '../../../lib/bundle/create/catalogs.ts';
import type { OperatorRequest, SelectedPackage } from '../../../lib/catalog/selection.ts';
import { PluginError } from '../../../lib/errors.ts';
import { checkImage } from '../../cli/values/checks.ts';
import type { Arguments } from '../../cli/command.ts';

/** The options of `create` for operators. */
export const catalogOptions = {
  catalog: {
    type: 'string',
    repeatable: true,
    describe: 'Catalog image to take operators from, such as registry.redhat.io/redhat/redhat-operator-index:v4.20',
    check: checkImage,
  },
  operator: {
    type: 'string',
    repeatable: true,
    describe: 'Operator to add: NAME[@CHANNEL[:INSTALLED VERSION]]; its updates are those since that version',
    check: (text: string) => void parseOperator(text),
  },
} as const;

/** Returns the request of the options. Throws `usage` for operators without a catalog. */
export function requestOperators({ catalog, operator }: Arguments<typeof catalogOptions>): CatalogRequest {
  if (operator.length > 0 && catalog.length === 0) {
    throw new PluginError('usage', '--operator needs the --catalog that has it');
  }
  return { catalogs: catalog, operators: operator.map(parseOperator) };
}

function parseOperator(text: string): OperatorRequest {
  const [, name, channel, installed] = /^([\w.-]+)(?:@([^:]+)(?::(.+))?)?$/.exec(text) ?? [];
  if (name !== undefined) return { name, channel, installed };
  throw new PluginError('usage', `“${text}” is not an operator`, {
    hint: 'Give its package name, with a channel and the installed version if needed: web-terminal@fast:1.10.0.',
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

/** Returns the same for JSON. */
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
