import type { BundleEvidence, VerifyTrust } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import type { Context } from '#context';
import { ignoring, isPluginError, PluginError } from '#errors';
import { loadKeyring, parseFingerprint, redHatReleaseKey, fingerprintOf, collectSignatures } from '#release/signature';
import { shellWord } from '#text';
import { agentSet } from './agentSurvey.ts';
import { noTrust, readTrust, trustArguments, type AgentTrust, type WantedTrust } from './agentTrust.ts';
import { readAgentVersion } from './executable.ts';

/**
 * Checks that the agents of a cluster would trust a bundle that the user allows with `trust`. Only warns if there is no
 * evidence, because the bundle was not read. Does nothing if there are no agents; warns if the user may not read them.
 * Throws `untrusted` and `unsigned`, with the `install` command that adds the trust, and `unsupported` for a bundle of
 * a format that the agents do not read.
 */
export async function checkAgents(
  cluster: Cluster,
  evidence: BundleEvidence | undefined,
  trust: WantedTrust,
  context: Context,
): Promise<void> {
  const agents = await cluster.read(agentSet).catch((error: unknown) => {
    if (!isPluginError(error, 'denied')) throw error;
    context.log('warn', `whether the agents trust it too is unknown: ${error.message}`);
    return undefined;
  });
  const read = evidence && (await readAgentVersion(cluster));
  if (read && !read.formats.includes(evidence.formatVersion)) {
    const { version, formats } = read;
    throw new PluginError(
      'unsupported',
      `the agents (${version}) would refuse the bundle: its format is ${evidence.formatVersion}, and they ` +
        `read ${formats.join(' and ')}`,
      { hint: 'Update the agents first: oc adm-upgrade-bundle install, with its former options.' },
    );
  }
  const theirs = agents && readTrust(agents);
  if (!theirs || theirs.allowUnsigned) return;
  if (evidence) return refuseWhatAgentsDo(evidence, theirs, trust, context);
  const lacking = trust.fingerprints
    .map(parseFingerprint)
    .filter((each) => each !== redHatReleaseKey && !theirs.fingerprints.includes(each));
  const { allowUnsigned } = trust;
  if (lacking.length === 0 && !allowUnsigned) return;
  const what = lacking.length > 0 ? `trust the key ${lacking.join(', ')}` : 'accept unsigned releases';
  const advice = adviseInstall(theirs, { fingerprints: lacking, keyrings: trust.keyrings, allowUnsigned });
  context.log('warn', `the agents do not ${what}. ${advice}`);
}

/**
 * Adds what the agents of a cluster trust to the trust of a command, and logs it. Changes nothing if there are no
 * agents, or if the user may not read them.
 */
export async function addAgentTrust(cluster: Cluster, trust: VerifyTrust, context: Context): Promise<VerifyTrust> {
  const agents = await cluster.read(agentSet).catch(ignoring('denied', 'not-served'));
  const theirs = agents ? readTrust(agents) : noTrust;
  const added = theirs.fingerprints.filter((each) => !trust.fingerprints.map(parseFingerprint).includes(each));
  if (added.length > 0) context.log('info', `trusting the keys that the agents trust: ${added.join(', ')}`);
  const keys = theirs.keys === '' ? [] : [{ name: 'the keys of the agents', content: theirs.keys }];
  const allowUnsigned = trust.allowUnsigned || theirs.allowUnsigned;
  return { ...trust, fingerprints: [...trust.fingerprints, ...added], keys, allowUnsigned };
}

async function refuseWhatAgentsDo(
  { signed: { release, signatures }, signatures: bundleSignatures }: BundleEvidence,
  theirs: AgentTrust,
  { keyrings }: WantedTrust,
  context: Context,
): Promise<void> {
  const signers = signatures.get(release.digest) ?? [];
  // The agents always trust the Red Hat release key, and every node has it.
  if (signers.some(({ fingerprint }) => fingerprint === redHatReleaseKey)) return;
  const own = theirs.keys === '' ? [] : [{ name: 'what the agents have', content: theirs.keys }];
  const sources = { system: '', others: [...own, ...release.verification.keys] };
  const keyring = await loadKeyring(sources, theirs.fingerprints, context);
  const nowhere = (): Promise<undefined> => Promise.resolve(undefined);
  const { good } = await collectSignatures(
    release.digest,
    { keyring, known: bundleSignatures, fetchFile: nowhere },
    context,
  );
  if (good.length > 0) return;
  const [signer] = signers;
  if (!signer) {
    throw new PluginError('unsigned', 'the agents would refuse the bundle: no key that they trust signed the release', {
      hint: adviseInstall(theirs, { fingerprints: [], keyrings: [], allowUnsigned: true }),
    });
  }
  const { fingerprint, userId } = signer;
  const isAtHand = [...keyring.trusted, ...keyring.untrusted].some((key) => fingerprintOf(key) === fingerprint);
  const lack = theirs.fingerprints.includes(fingerprint) ? 'have' : 'trust';
  const more = { fingerprints: [fingerprint], keyrings: isAtHand ? [] : keyrings, allowUnsigned: false };
  throw new PluginError(
    'untrusted',
    `the agents would refuse the bundle: they do not ${lack} the key ${fingerprint} (${userId}), which signed ` +
      'the release',
    { hint: adviseInstall(theirs, more) },
  );
}

/** Returns the hint with the `install` command that extends the trust of the agents. */
function adviseInstall({ fingerprints }: AgentTrust, more: WantedTrust): string {
  const all = [...new Set([...fingerprints, ...more.fingerprints])];
  const words = trustArguments({ ...more, fingerprints: all, keyrings: more.keyrings.map(shellWord) });
  return `Run this first, with the other options of the installation: oc adm-upgrade-bundle install ${words.join(' ')}`;
}
