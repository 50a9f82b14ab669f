import { basename } from 'node:path/posix';
import type { Bundle } from '#bundle/open';
import { isFile, readLayer } from '#content/archive';
import { isIndex, parseManifest, parseReference, parseJson } from '#content/oci';
import { readContent } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { fieldsAt, textOf } from '#fields';

/** The labels of an operator’s bundle image: the folder of its manifests, and its package (operator-registry). */
const labels = {
  folder: 'operators.operatorframework.io.bundle.manifests.v1',
  package: 'operators.operatorframework.io.bundle.package.v1',
} as const;

// Real bundle images have less than 1 MB. A ClusterServiceVersion is limited by etcd.
const limits = { file: 16 * 1024 * 1024, packed: 256 * 1024 * 1024, unpacked: 1024 * 1024 * 1024 } as const;

/** The manifests of an operator, by the names of their files. */
export interface OperatorManifests {
  /** The name of its package, and the first digits of the digest of its bundle image. */
  readonly name: string;
  readonly files: ReadonlyMap<string, Buffer>;
}

/**
 * Reads the manifests of the operators whose bundle images are among the extra images of a bundle. Skips images that it
 * does not have completely, with a warning. Throws `interrupted`.
 */
export async function readOperatorManifests(
  { content, metadata }: Pick<Bundle, 'content' | 'metadata'>,
  context: Context,
): Promise<OperatorManifests[]> {
  const operators: OperatorManifests[] = [];
  for (const image of metadata.extraImages) {
    try {
      const operator = await readOperator(content, parseReference(image).digest ?? '', context);
      if (operator) operators.push(operator);
    } catch (error) {
      if (isPluginError(error, 'interrupted') || !(isPluginError(error) || error instanceof SyntaxError)) throw error;
      context.log('warn', `${image} is not checked: ${error.message}`);
    }
  }
  return operators;
}

async function readOperator(
  content: Bundle['content'],
  digest: string,
  context: Context,
): Promise<OperatorManifests | undefined> {
  const root = await content.resolve(digest);
  const where = `${root.digest} in ${content.name}`;
  const manifest = parseManifest(await readContent(content, root), where);
  // Bundle images run on no architecture, so they are no lists.
  if (isIndex(manifest) || !manifest.config) return undefined;
  const config = parseJson((await readContent(content, manifest.config)).toString());
  const { [labels.folder]: label, [labels.package]: owner } = fieldsAt(config, 'config', 'Labels');
  const folder = textOf(label)?.replace(/^\/+|\/+$/g, '');
  if (folder === undefined) return undefined;
  const files = new Map<string, Buffer>();
  for (const layer of manifest.layers) {
    const options = { ...limits, of: 'the bundle of an operator', code: 'invalid-file' } as const;
    await readLayer(content, layer, options, context, (entry) => {
      const path = entry.path.replace(/^(?:\.?\/)+/, '');
      if (!path.startsWith(`${folder}/`) || !/\.(?:ya?ml|json)$/.test(path) || !isFile(entry)) return undefined;
      if (entry.size > limits.file) throw new PluginError('too-large', `${path} in ${where} is too large`);
      const chunks: Buffer[] = [];
      return { write: (chunk) => chunks.push(chunk), end: () => files.set(basename(path), Buffer.concat(chunks)) };
    });
  }
  return { name: `${textOf(owner) ?? 'operator'}-${root.digest.slice(7, 19)}`, files };
}
