import { openBundle } from '../../lib/bundle/open.ts';
import { verifyBundle, type VerifyReport } from '../../lib/bundle/verify.ts';
import { openRegistryOrigin } from '../../lib/bundle/origin.ts';
import { PluginError } from '../../lib/errors.ts';
import { parseDigest } from '../../lib/oci/digest.ts';
import { openAccess } from '../access.ts';
import { defineCommand } from '../command.ts';
import { formatBytes } from '../format.ts';
import { formatOption, registryOptions, trustOptions } from '../options.ts';

const { 'certificate-authority': authority, insecure } = registryOptions;

/** `verify`: checks a bundle from its signature to its last blob. */
export const command = defineCommand({
  details:
    'The signature vouches for the release, the release for its components, each manifest for what it points to: everything is read ' +
    'once and whatever is missing, cut short, altered or superfluous is named. No network is used unless --signature-store names one. ' +
    'A .sha256 file beside the bundle is compared too.',
  positionals: {
    bundle: { type: 'string', required: true, describe: 'A bundle, a device that holds one, or a mirror directory' },
  },
  options: {
    digest: { type: 'string', describe: 'The digest that the whole file must have (sha256:<64 hex digits>)' },
    ...formatOption(['json']),
    'certificate-authority': authority,
    insecure,
    ...trustOptions,
  },
  examples: [
    ['upgrade-4.12.4-x86_64.tar', 'Check a bundle'],
    ['/dev/sdb', 'Check a bundle on a stick, in place'],
  ],
  async run(args, { context, terminal, environment }) {
    const expected = args.digest === undefined ? undefined : parseDigest(args.digest);
    const access = await openAccess(
      { ...args, pullSecret: undefined, idmsFile: undefined, maxPerRegistry: 6 },
      environment,
    );
    const reading = { ...context, onEvent: terminal.transfer('Verifying') };
    const origin = openRegistryOrigin(access, reading);
    const bundle = await openBundle(args.bundle, reading, true);
    try {
      const trust = {
        keyrings: args.signatureKeyring,
        fingerprints: args.trustFingerprint,
        allowUnsigned: args.allowUnsigned,
        store: args.signatureStore,
        fetchFile: origin.fetchFile,
      };
      const report = await verifyBundle(bundle, trust, expected, reading);
      terminal.print(args.format === 'json' ? JSON.stringify(toPlain(report), null, 2) : toWords(report));
      const count = report.problems.length;
      if (count === 0) return;
      throw new PluginError(
        'incomplete',
        `${args.bundle} has ${count === 1 ? 'a problem' : `${String(count)} problems`}`,
        {
          hint: 'Copy the bundle again from where it came from, or run the create command again in its folder.',
        },
      );
    } finally {
      await bundle.close();
      await origin.close();
    }
  },
});

function toPlain({ signatures, ...report }: VerifyReport): Record<string, unknown> {
  const signers = signatures.map(({ fingerprint, userId, created }) => ({ fingerprint, signer: userId, created }));
  return { good: report.problems.length === 0, ...report, signatures: signers };
}

function toWords({ digest, images, manifests, blobs, bytes, signatures, problems }: VerifyReport): string {
  const signers = signatures.map(
    ({ fingerprint, userId, created }) =>
      `  Signed by  ${userId} (${fingerprint}) on ${created.toISOString().slice(0, 10)}`,
  );
  return [
    problems.length === 0 ? 'Good' : 'Not good',
    ...(digest === undefined ? [] : [`  Digest     ${digest}`]),
    `  Images     ${String(images)} whole (${String(manifests)} manifests, ${String(blobs)} blobs)`,
    `  Read       ${formatBytes(bytes)}`,
    ...signers,
    ...problems.map(
      ({ kind, message, images: needing }) =>
        `  ${kind.padEnd(12)} ${message}${needing.length === 0 ? '' : `, needed by ${nameSome(needing)}`}`,
    ),
  ].join('\n');
}

function nameSome(names: readonly string[]): string {
  const others = names.length > 5 ? ` and ${String(names.length - 5)} more` : '';
  return names.slice(0, 5).join(', ') + others;
}
