import { identifyBundle, parseIdentity, type BundleEvidence } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import { readSmallInput } from '#content/files';
import { PluginError } from '#errors';
import { addAgentTrust, checkAgents } from '#update/install';
import { type BundleRequest, fitsSpec, type Phase } from '#update/record';
import { inGroup, type Arguments, type CommandSession } from '../cli/command.ts';
import { clusterAccessOptions, signedImagesOption } from '../cli/options.ts';
import { offlineTrustOf, offlineTrustOptions } from '../cli/trust.ts';
import { digestOption, readDigest, fileOf, filenameOption } from '../cli/values.ts';

/** Checks a path on a node: absolute, without . and .. in it. Throws `usage`. */
export function checkNodePath(text: string): void {
  if (fitsSpec('bundle.file', text) && !/(?:^|\/)\.\.?(?:\/|$)/.test(text)) return;
  const hint = text.includes('://')
    ? 'Mount it on the node first, and give the folder, such as /var/mnt/backup.'
    : 'Give the path as the node has it, from / on, such as /dev/sdb.';
  throw new PluginError('usage', `“${text}” is not an absolute path of a node`, { hint });
}

/** The argument with a bundle for a cluster. */
export const namedArgument = {
  bundle: {
    type: 'string',
    suggest: 'bundles',
    describe: 'Bundle on this machine, the .yaml or .sha256 file beside it, or - for a .yaml on the standard input',
  },
} as const;

/** The options in place of the argument, and for the place of the bundle in the cluster. */
export const namedOptions = inGroup('Bundle:', {
  ...filenameOption,
  device: {
    type: 'string',
    describe: 'Device or file of a node with the bundle, such as /dev/sdb',
    check: checkNodePath,
  },
  digest: digestOption('Expected digest of the bundle (sha256:<64 hex digits>)'),
});

/** The options that decide whether to trust the bundle, and for the cluster. */
export const namedTrustOptions = { ...offlineTrustOptions, ...signedImagesOption, ...clusterAccessOptions } as const;

/** The largest UpgradeBundle on the standard input, in bytes. */
const inputLimit = 1024 * 1024;

type NamedBundle = Arguments<typeof namedArgument & typeof namedOptions & typeof namedTrustOptions>;

/**
 * Returns the file that a command line names; undefined if it gives the digest of a bundle. Throws `usage` without
 * both.
 */
export function requireOneBundle({ bundle, filename, digest }: NamedBundle): string | undefined {
  const named = fileOf(bundle, filename);
  if (named !== undefined || digest !== undefined) return named;
  throw new PluginError('usage', 'no bundle is given: name a file, or give --digest', {
    hint: 'The digest is in the .sha256 file beside the bundle.',
  });
}

/**
 * Identifies a named bundle, and checks that the agents of the cluster would take it. What they trust is trusted here.
 * Throws the errors of identifyBundle and checkAgents, and `digest-mismatch` for another digest than the given one.
 */
export async function identifyNamed(
  cluster: Cluster,
  named: string | undefined,
  args: NamedBundle,
  { context, terminal, stdin }: Pick<CommandSession, 'context' | 'terminal' | 'stdin'>,
): Promise<{ readonly request: BundleRequest; readonly evidence: BundleEvidence | undefined }> {
  const hashing = { ...context, onEvent: terminal.transfer('Reading') };
  const trust = await addAgentTrust(cluster, offlineTrustOf(args), context);
  const given = args.digest === undefined ? undefined : readDigest(args.digest);
  const source = named === '-' ? 'the standard input' : named;
  const identify = async (path: string) =>
    path === '-'
      ? parseIdentity(String(await readSmallInput(stdin, inputLimit)), 'the standard input')
      : identifyBundle(path, trust, hashing);
  const own = named === undefined ? undefined : await identify(named);
  if (own && given !== undefined && own.digest !== given) {
    throw new PluginError('digest-mismatch', `${String(source)} has another digest than --digest: ${own.digest}`, {
      hint: 'One of the two is wrong. Do not apply the bundle before you know which.',
    });
  }
  if (own && !own.evidence) {
    const stated = [own.version, own.digest].filter((each) => each !== undefined).join(', ');
    const message = `nothing is verified: ${String(source)} only states ${stated}. Give the bundle itself to check it`;
    context.log('warn', message);
  }
  const digest = own?.digest ?? given;
  if (!digest) throw new PluginError('internal', 'a bundle without a digest');
  const { evidence, name, version, releaseDigest } = own ?? {};
  await checkAgents(cluster, evidence, offlineTrustOf(args), context);
  return { request: { name, digest, version, releaseDigest, file: args.device }, evidence };
}

/** Returns the last line of the output: how far the UpgradeBundle is, and how to follow it. */
export function followLine(phase: Phase | undefined, access: string, isHeld = false): string {
  const now = phase === undefined ? 'The agents look for it now.' : `It is ${phase}.`;
  const held = isHeld ? ` The update waits for oc adm-upgrade-bundle resume${access}.` : '';
  return `${now}${held} Follow it: oc adm-upgrade-bundle status -w${access}`;
}
