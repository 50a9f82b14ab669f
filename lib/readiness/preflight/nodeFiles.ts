import { gunzipSync } from 'node:zlib';
import { fieldsAt, fieldsOf, listOf, textOf } from '../../fields.ts';
import { ignoring } from '../../errors.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { StoredObject } from '../../cluster/fields.ts';

/** The files of the nodes of a pool that its MachineConfig writes, as texts by their paths. */
export interface PoolFiles {
  readonly pool: string;
  readonly files: ReadonlyMap<string, string>;
}

/** The largest file, in bytes. A policy.json has a few kilobytes. */
const sizeLimit = 1024 * 1024;

/**
 * Reads some files of the nodes of each pool from the MachineConfig that the pool has. Leaves out pools whose
 * MachineConfig does not exist or may not be read.
 */
export async function readPoolFiles(
  cluster: Cluster,
  pools: readonly StoredObject[],
  paths: readonly string[],
): Promise<PoolFiles[]> {
  const found = await Promise.all(
    pools.map(async ({ metadata, status }): Promise<PoolFiles[]> => {
      const name = textOf(fieldsAt(status, 'configuration')['name']);
      const config = name === undefined ? undefined : await readMachineConfig(cluster, name);
      if (!config) return [];
      const files = listOf(fieldsAt(config['spec'], 'config', 'storage')['files']).flatMap(({ path, contents }) => {
        const text = paths.includes(String(path)) ? decode(fieldsOf(contents)) : undefined;
        return text === undefined ? [] : [[String(path), text] as const];
      });
      return [{ pool: metadata.name, files: new Map(files) }];
    }),
  );
  return found.flat();
}

async function readMachineConfig(cluster: Cluster, name: string): Promise<StoredObject | undefined> {
  const apiVersion = 'machineconfiguration.openshift.io/v1';
  if (!(await cluster.findKind(apiVersion, 'MachineConfig'))) return undefined;
  return cluster.read({ apiVersion, kind: 'MachineConfig', metadata: { name } }).catch(ignoring('denied'));
}

/** Reads the data URL of a file of Ignition; undefined if it is malformed or too large. */
function decode({ source, compression }: Record<string, unknown>): string | undefined {
  const [, isBase64, data = ''] = /^data:[^,]*?(;base64)?,(.*)$/s.exec(String(source)) ?? [];
  try {
    const bytes = isBase64 === undefined ? Buffer.from(decodeURIComponent(data)) : Buffer.from(data, 'base64');
    const plain = compression === 'gzip' ? gunzipSync(bytes, { maxOutputLength: sizeLimit }) : bytes;
    return plain.length > sizeLimit ? undefined : plain.toString('utf8');
  } catch {
    return undefined;
  }
}
