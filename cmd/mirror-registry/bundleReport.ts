import type { Bundle } from '../../lib/bundle/bundle.ts';
import { inspectBundle } from '../../lib/bundle/inspect/inspect.ts';
import type { Context } from '../../lib/context.ts';
import { imagesOfBundle } from '../../lib/mirror-registry/releases/registryBundle.ts';
import type { RegistryRelease } from '../../lib/mirror-registry/releases/images.ts';
import { formatBytes, formatData, formatTable } from '../cli/format.ts';

type Format = 'json' | 'yaml' | undefined;

/** Describes a release that a registry has, whose images are not in a bundle. */
export async function describeRegistryRelease(
  { name, version, arch, size, images }: RegistryRelease,
  format: Format,
): Promise<string> {
  const rows = Object.entries(images).map(([component, image]) => ({ name: component, ...image }));
  if (format) return formatData(format, { path: name, version, arch, size, verified: false, images: rows });
  const table = formatTable([['COMPONENT', 'IMAGE'], ...rows.map((row) => [row.name, row.image])]);
  return [
    `Mirror registry ${version ?? ''} for ${arch ?? 'any machine'}, ${formatBytes(size)}, not verified`,
    '',
    table,
  ].join('\n');
}

/** Describes a bundle with the size of each image and whether it is complete. */
export async function describeBundle(bundle: Bundle, format: Format, context: Context): Promise<string> {
  const { path, metadata } = bundle;
  const { images: found, totals, notes } = await inspectBundle(bundle, context);
  const { version, arch, size } = metadata;
  const rows = Object.entries(imagesOfBundle(metadata, path)).map(([name, { image, digest }]) => {
    const { size: bytes = 0, complete = false } = found.find((each) => each.digest === digest) ?? {};
    return { name, image, digest, size: bytes, complete };
  });
  if (format) return formatData(format, { path, version, arch, size, verified: false, images: rows, totals, notes });
  const cells = rows.map(({ name, image, size: bytes, complete }) => [
    name,
    image,
    formatBytes(bytes),
    complete ? '' : 'incomplete',
  ]);
  const table = formatTable([['COMPONENT', 'IMAGE', 'SIZE', ''], ...cells], ['SIZE']);
  const title = `Mirror registry ${version} for ${arch}, ${formatBytes(size)}, not verified`;
  return [title, '', table, ...notes.map((note) => `note: ${note}`)].join('\n');
}
