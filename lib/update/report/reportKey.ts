import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { AppliedObject, ApplyOptions } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import type { Written } from '#config/manifest';
import { ignoring, messageOf, PluginError } from '#errors';
import { fieldsOf, textOf } from '#fields';
import { exportPublicKey } from '#release/sigstore';
import { agentNamespace } from '../record/upgradeBundle.ts';

/** The Secret with the private key that signs the reports of an installation, which only the controllers mount. */
export const reportKeySecret = {
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name: 'report-key', namespace: agentNamespace },
} as const;

/** The ConfigMap with its public key, and with the last report, which agents write onto a drive. */
export const reportMap = {
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'update-report', namespace: agentNamespace },
} as const;

/** The name of the key in the Secret, and of the public key in the ConfigMap. */
export const reportKeyField = 'report.key';

/** The folder of the Secret in the pods of controllers, and below their root directory. */
export const reportKeyFolder = '/run/secrets/oc-upgrade-bundle-report';

/**
 * Creates the key that signs reports, and the ConfigMap with its public part. An existing key stays, because engineers
 * know it. Throws the errors of the cluster.
 */
export async function makeReportKey(
  cluster: Cluster,
  { dryRun }: Pick<ApplyOptions, 'dryRun'>,
): Promise<AppliedObject[]> {
  const before = await cluster.read(reportKeySecret);
  const present = textOf(fieldsOf(before?.['data'])[reportKeyField]);
  const key = present === undefined ? generateKeyPairSync('ed25519').privateKey : parseKey(present);
  const pem = exportPublicKey(key).toString();
  const known = fieldsOf((await cluster.read(reportMap))?.['data'])[reportKeyField];
  if (!dryRun && present === undefined) {
    const text = key.export({ type: 'pkcs8', format: 'pem' });
    const data = { [reportKeyField]: Buffer.from(text).toString('base64') };
    await cluster.apply({ ...reportKeySecret, type: 'Opaque', data } satisfies Written<'Secret'>);
  }
  const map: Written<'ConfigMap'> = { ...reportMap, data: { [reportKeyField]: pem } };
  if (!dryRun && known !== pem) await cluster.apply(map, { force: true });
  const outcomeOf = (isSame: boolean, isNew: boolean) => (isSame ? 'unchanged' : isNew ? 'created' : 'configured');
  return [
    // The result must not contain the key.
    { object: reportKeySecret, outcome: outcomeOf(present !== undefined, !before) },
    { object: reportMap, outcome: outcomeOf(known === pem, known === undefined) },
  ];
}

/**
 * Returns the public key of the reports of an installation, in PEM form; undefined if there is none, or it may not be
 * read.
 */
export async function readReportKey(cluster: Cluster): Promise<string | undefined> {
  const map = await cluster.read(reportMap).catch(ignoring('denied', 'not-found'));
  return textOf(fieldsOf(map?.['data'])[reportKeyField]);
}

/** Reads the key that signs reports from the folder of its Secret. Throws `not-readable`. */
export async function loadReportKey(folder: string): Promise<KeyObject> {
  const path = `${folder}/${reportKeyField}`;
  try {
    return createPrivateKey(await readFile(path));
  } catch (cause) {
    const hint = 'Run install again, with reports allowed.';
    throw new PluginError('not-readable', `${path} has no key for reports: ${messageOf(cause)}`, { hint, cause });
  }
}

function parseKey(encoded: string): KeyObject {
  try {
    return createPrivateKey(Buffer.from(encoded, 'base64'));
  } catch (cause) {
    const { name, namespace } = reportKeySecret.metadata;
    throw new PluginError('invalid-file', `the Secret ${name} in ${namespace} has no key: ${messageOf(cause)}`, {
      hint:
        `Delete it, and run install again: engineers then need the new key. oc delete secret ${name} ` +
        `-n ${namespace}`,
      cause,
    });
  }
}
