// Starts the registries and the cluster of the tutorial, or one of its two processes in the
// background: `npm run tutorial`.
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { furnish } from './fakes/cluster/site.ts';
import { startApiServer } from './fakes/kubernetes/apiServer.ts';
import { startRegistry } from './fakes/registry/registry.ts';
import { startSignatureServer } from './fakes/registry/signatureServer.ts';
import { buildRelease } from './support/release/release.ts';
import { makeSigningKey, signatureStore, signDigest } from './support/release/signing.ts';

/** The lifetime of the processes if no user stops them, in milliseconds. */
const longest = 3 * 60 * 60 * 1000;
const [version, previous] = ['4.20.3', '4.20.2'];
const folder = 'tutorial';

/** The values of a process, for the file that the user reads into the shell. */
type Places = Readonly<Record<string, string>>;

/** Starts the side with internet: a registry instead of quay.io, with a release and its signatures. */
async function startUpstream(): Promise<Places> {
  const key = await makeSigningKey({ name: 'Tutorial key' });
  const registry = await startRegistry();
  const release = buildRelease({
    version,
    components: 39,
    layerSize: (component, layer) => 100_000 + ((component.length * 37 + layer * 11) % 23) * 50_000,
    previous: [previous],
    verification: { publicKey: key.publicKey, stores: [] },
  });
  release.addTo(registry.content);
  const signed = new Map([[release.digest, [await signDigest(key, release.digest)]]]);
  const signatures = await startSignatureServer(signatureStore(signed, '/'));
  await writeFile(`${folder}/key.asc`, key.publicKey);
  const mirrors = { source: 'quay.io', mirrors: [registry.host], mirrorSourcePolicy: 'NeverContactSource' };
  const objects = ['ImageDigestMirrorSet', 'ImageTagMirrorSet'].map((kind) => ({
    apiVersion: 'config.openshift.io/v1',
    kind,
    metadata: { name: 'tutorial' },
    spec: { [`image${kind.slice(5, -3)}s`]: [mirrors] },
  }));
  await writeFile(`${folder}/mirrors.yaml`, objects.map((object) => JSON.stringify(object)).join('\n---\n'));
  return { SIGNATURES: signatures.url, FINGERPRINT: key.fingerprint };
}

/** Starts the side without internet: an empty registry, and the API server of a cluster. */
async function startSite(): Promise<Places> {
  const registry = await startRegistry();
  const server = await startApiServer({ openshift: previous });
  furnish(server);
  const named = <T>(name: string, entry: T): [{ name: string } & T] => [{ name, ...entry }];
  const kubeconfig = {
    'current-context': 'site',
    contexts: named('site', { context: { cluster: 'site', user: 'admin' } }),
    clusters: named('site', { cluster: { server: server.url } }),
    users: named('admin', { user: {} }),
  };
  await writeFile(`${folder}/kubeconfig`, JSON.stringify(kubeconfig));
  return { REGISTRY: registry.host };
}

const sides = { upstream: startUpstream, site: startSite };

/** Starts a side in the background. Returns its values, and its process ID. */
async function start(side: keyof typeof sides): Promise<Places> {
  // A separate file, because a background process would keep a pipe open for its reader.
  const log = `${folder}/${side}.log`;
  const errors = openSync(log, 'w');
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), side], {
    detached: true,
    stdio: ['ignore', 'pipe', errors],
  });
  closeSync(errors);
  if (!child.stdout) throw new Error(`${side} has no output`);
  const answer = await text(child.stdout);
  if (answer === '') throw new Error(`${side} did not start: see ${log}`);
  child.unref();
  return { [side.toUpperCase()]: String(child.pid), ...(JSON.parse(answer) as Places) };
}

const [, , chosen] = process.argv;
if (chosen === 'upstream' || chosen === 'site') {
  const places = await sides[chosen]();
  process.stdout.end(JSON.stringify(places));
  setTimeout(() => process.exit(), longest);
} else {
  await mkdir(folder, { recursive: true });
  const places = { ...(await start('upstream')), ...(await start('site')) };
  const lines = Object.entries(places).map(([name, value]) => `${name}=${value}\n`);
  await writeFile(`${folder}/places`, lines.join(''));
  process.stdout.write(`In ${folder}: ${['key.asc', 'mirrors.yaml', 'kubeconfig', 'places'].join(', ')}\n`);
}
