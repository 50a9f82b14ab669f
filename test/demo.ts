// Runs the main workflow from beginning to end on this machine: `npm run demo`.
import { spawn } from 'node:child_process';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startRegistry } from './fakes/registry/registry.ts';
import { startSignatureServer } from './fakes/registry/signatureServer.ts';
import { buildRelease } from './support/release/release.ts';
import { makeSigningKey, signatureStore, signDigest } from './support/release/signing.ts';

const program = new URL('../cmd/oc-adm_upgrade_bundle.ts', import.meta.url).pathname;
const folder = await mkdtemp(join(tmpdir(), 'upgrade-bundle-demo-'));

say('A registry on this machine stands for quay.io. It has a release of 60 images, signed with a temporary key.');
const key = await makeSigningKey({ name: 'Demonstration key' });
const registry = await startRegistry();
const release = buildRelease({
  version: '4.20.3',
  components: 59,
  layerSize: (component, layer) => 300_000 + ((component.length * 37 + layer * 11) % 23) * 110_000,
  previous: ['4.19.12', '4.20.2'],
  verification: { publicKey: key.publicKey, stores: [] },
});
release.addTo(registry.content);
const signatures = await startSignatureServer(
  signatureStore(new Map([[release.digest, [await signDigest(key, release.digest)]]]), '/'),
);
await writeFile(join(folder, 'key.asc'), key.publicKey);
const mirrors = ['ImageDigestMirrorSet', 'ImageTagMirrorSet'].map((kind) => ({
  apiVersion: 'config.openshift.io/v1',
  kind,
  metadata: { name: 'demo' },
  spec: {
    [`image${kind.slice(5, -3)}s`]: [
      { source: 'quay.io', mirrors: [registry.host], mirrorSourcePolicy: 'NeverContactSource' },
    ],
  },
}));
await writeFile(join(folder, 'mirrors.yaml'), mirrors.map((object) => JSON.stringify(object)).join('\n---\n'));

const trust = ['--signature-keyring=key.asc', `--trust-fingerprint=${key.fingerprint}`];
const bundle = 'upgrade-4.20.3-x86_64.tar';
say(`$ cd ${folder}`);
await run('create', [
  '--version=4.20.3',
  '--arch=x86_64',
  '--idms-file=mirrors.yaml',
  '--insecure',
  `--signature-store=${signatures.url}`,
  ...trust,
  '--output=.',
]);
await registry.stop();
await signatures.stop();
say('The registry is gone. From here on, there is only the file.');
await run('inspect', [bundle]);
await run('verify', [bundle, ...trust]);
say(
  `The bundle is here:\n\n  ${join(folder, bundle)}\n\nIt is an ordinary tar: tar -tf lists it. Remove ` +
    `${folder} when you are done with it.`,
);

function say(text: string): void {
  process.stdout.write(`\n${text}\n`);
}

async function run(verb: string, args: readonly string[]): Promise<void> {
  say(`$ oc adm-upgrade-bundle ${verb} ${args.join(' \\\n      ')}\n`);
  const child = spawn(process.execPath, [program, verb, ...args], { stdio: 'inherit', cwd: folder });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  if (code !== 0) process.exit(code ?? 1);
}
