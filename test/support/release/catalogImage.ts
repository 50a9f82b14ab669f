import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import type { TestContent } from '../content/image.ts';
import { makeFileLayer, makeNoiseLayer, type TestLayer } from '../content/layers.ts';

/** A version of an operator, `NAME.vVERSION`, in the entries of a channel. */
export interface OperatorVersion {
  readonly version: string;
  readonly replaces?: string;
  readonly skips?: readonly string[];
  readonly skipRange?: string;
}

/** An operator of a test catalog. */
export interface TestOperator {
  readonly name: string;
  /** The first channel is the default one. */
  readonly channels: Readonly<Record<string, readonly OperatorVersion[]>>;
  /** More properties of every bundle: `olm.gvk`, `olm.package.required`. */
  readonly properties?: readonly { readonly type: string; readonly value: object }[];
  /** The images of a version; by default one, which is in no registry. */
  readonly images?: (version: string) => readonly string[];
}

/** The documents of a file-based catalog for an operator. */
export function catalogDocuments({ name, channels, properties = [], images }: TestOperator): object[] {
  const [defaultChannel = ''] = Object.keys(channels);
  const versions = [...new Set(Object.values(channels).flatMap((list) => list.map(({ version }) => version)))];
  const nameOf = (version: string): string => `${name}.v${version}`;
  const imagesOf =
    images ?? ((version) => [`quay.io/example/${name}@sha256:${version.replace(/\D/g, '').padStart(64, '0')}`]);
  return [
    { schema: 'olm.package', name, defaultChannel, description: 'A “test” operator: {"\\"' },
    ...Object.entries(channels).map(([channel, entries]) => ({
      schema: 'olm.channel',
      package: name,
      name: channel,
      entries: entries.map(({ version, replaces, skips, skipRange }) => ({
        name: nameOf(version),
        ...(replaces !== undefined && { replaces: nameOf(replaces) }),
        ...(skips && { skips: skips.map(nameOf) }),
        ...(skipRange !== undefined && { skipRange }),
      })),
    })),
    ...versions.map((version) => {
      const [image = '', ...related] = imagesOf(version);
      return {
        schema: 'olm.bundle',
        package: name,
        name: nameOf(version),
        image,
        properties: [{ type: 'olm.package', value: { packageName: name, version } }, ...properties],
        relatedImages: related.map((address, index) => ({ name: `image-${String(index)}`, image: address })),
      };
    }),
    {
      schema: 'olm.deprecations',
      package: name,
      entries: versions.map((version) => ({
        reference: { schema: 'olm.bundle', name: nameOf(version) },
        message: version,
      })),
    },
  ];
}

/** The layers of a catalog image: opm, the catalog with a file for each operator, and its cache. */
export function catalogLayers(files: ReadonlyMap<string, string>): TestLayer[] {
  return [
    makeNoiseLayer('opm', 20_000),
    makeFileLayer(new Map([...files].map(([path, text]) => [`configs/${path}`, text]))),
    makeFileLayer(new Map([['tmp/cache/pogreb.v1/index', 'an old cache']])),
  ];
}

/** Adds a catalog image, with the label and the command that `opm generate dockerfile` writes. */
export function addCatalog(
  content: TestContent,
  repository: string,
  layers: readonly TestLayer[],
  { architecture = 'amd64', tag }: { architecture?: string; tag?: string } = {},
): Descriptor {
  return content.addImage(
    repository,
    {
      architecture,
      layers,
      entrypoint: ['/bin/opm'],
      command: ['serve', '/configs', '--cache-dir=/tmp/cache'],
      labels: { 'operators.operatorframework.io.index.configs.v1': '/configs' },
    },
    tag,
  );
}

/** The files of a catalog: for each operator its JSON documents, one after another. */
export function catalogFiles(operators: readonly TestOperator[]): Map<string, string> {
  return new Map(
    operators.map((operator) => [
      `${operator.name}/catalog.json`,
      catalogDocuments(operator)
        .map((document) => JSON.stringify(document, null, 2))
        .join('\n'),
    ]),
  );
}
