import type { KubernetesObject } from '#config/manifest';
import type { Context, LogLevel } from '#context';
import { PluginError } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import { armorTrusted, loadKeyring, parseFingerprint, redHatReleaseKey, fingerprintOf } from '#release/signature';
import { upgradeBundleApi } from '../record/upgradeBundle.ts';
import { keyringPath } from './agentScript.ts';

/** The trust of the agents of a cluster, in addition to the Red Hat release key. */
export interface AgentTrust {
  /** The fingerprints of the additional trusted keys: upper-case hex, sorted. */
  readonly fingerprints: readonly string[];
  /**
   * The trusted keys with which agents were installed, armored; empty for none. Further keys may be in a payload or on
   * the nodes.
   */
  readonly keys: string;
  readonly allowUnsigned: boolean;
}

/** The trust to give to agents: fingerprints, and files with keys. Only the trusted keys in the files count. */
export interface WantedTrust {
  readonly fingerprints: readonly string[];
  readonly keyrings: readonly string[];
  readonly allowUnsigned: boolean;
}

/** The trust of agents that trust only the Red Hat release key. */
export const noTrust: AgentTrust = { fingerprints: [], keys: '', allowUnsigned: false };

/** The annotation of the pods of agents that has the keys, which are mounted as a file. */
export const keysAnnotation = `${upgradeBundleApi.group}/keys`;

/** The options of an agent, and of `install`, that trust a key and allow unsigned releases. */
const [fingerprintOption, unsignedOption] = ['--trust-fingerprint=', '--allow-unsigned'] as const;

/** Returns the arguments that give trust to an agent or to `install`. */
export function trustArguments({ fingerprints, keyrings, allowUnsigned }: WantedTrust): string[] {
  return [
    ...fingerprints.map((fingerprint) => `${fingerprintOption}${fingerprint}`),
    ...keyrings.map((file) => `--signature-keyring=${file}`),
    ...(allowUnsigned ? [unsignedOption] : []),
  ];
}

/** Returns the arguments for an agent with this trust. Its keys are the file at `keyringPath`. */
export function describeTrust({ fingerprints, keys, allowUnsigned }: AgentTrust): string[] {
  return trustArguments({ fingerprints, keyrings: keys === '' ? [] : [keyringPath], allowUnsigned });
}

/** Reads the trust of the agents from their DaemonSet. */
export function readTrust(agents: KubernetesObject): AgentTrust {
  const template = fieldsAt(agents, 'spec', 'template');
  const [container] = listOf(fieldsOf(template['spec'])['containers']);
  const { args } = container ?? {};
  const words = Array.isArray(args) ? args.map(String) : [];
  return {
    fingerprints: words
      .filter((word) => word.startsWith(fingerprintOption))
      .map((word) => word.slice(fingerprintOption.length)),
    keys: textOf(fieldsAt(template, 'metadata', 'annotations')[keysAnnotation]) ?? '',
    allowUnsigned: words.includes(unsignedOption),
  };
}

/**
 * Returns the trust to give to agents. It replaces their trust before, but keys that agents already have need not be
 * given again while they are trusted. Throws `usage` for files without a trusted key and for an invalid fingerprint,
 * and the errors of reading the files.
 */
export async function gatherTrust(wantedTrust: WantedTrust, before: AgentTrust, context: Context): Promise<AgentTrust> {
  const { keyrings: files, allowUnsigned } = wantedTrust;
  const fingerprints = [...new Set(wantedTrust.fingerprints.map(parseFingerprint))].filter(isNotUsual).sort();
  // Other keys on this machine are not part of the request.
  const named = await loadKeyring({ files, system: '' }, fingerprints, context);
  const [stranger] = named.untrusted;
  if (named.trusted.length === 0 && stranger) {
    throw new PluginError('usage', `none of the keys in ${files.join(', ')} is trusted: agents would not use them`, {
      hint:
        `One has the fingerprint ${fingerprintOf(stranger)}. Compare all its digits with what the owner of the ` +
        'key says by another way, and if they ' +
        `are the same add ${fingerprintOption}${fingerprintOf(stranger)}`,
    });
  }
  const others = before.keys === '' ? [] : [{ name: `the annotation ${keysAnnotation}`, content: before.keys }];
  const keyring = await loadKeyring({ files, system: '', others }, fingerprints, context);
  return { fingerprints, keys: armorTrusted(keyring), allowUnsigned };
}

/** Describes the changes of an installation to the trust of the agents. Changes that may be unexpected are warnings. */
export function compareTrust(before: AgentTrust, after: AgentTrust): { level: LogLevel; words: string }[] {
  const gained = after.fingerprints.filter((each) => !before.fingerprints.includes(each));
  const lost = before.fingerprints.filter((each) => !after.fingerprints.includes(each));
  const keep = (option: string): string => `: to keep that, add ${option}`;
  const unsigned = 'accept unsigned releases';
  return [
    ...gained.map((each) => ({ level: 'info' as const, words: `agents are to trust the key ${each}` })),
    ...[
      ...lost.map((each) => `agents are not to trust the key ${each} any more${keep(`${fingerprintOption}${each}`)}`),
      ...(after.allowUnsigned && !before.allowUnsigned ? [`agents are to ${unsigned}`] : []),
      ...(before.allowUnsigned && !after.allowUnsigned
        ? [`agents are not to ${unsigned} any more${keep(unsignedOption)}`]
        : []),
    ].map((words) => ({ level: 'warn' as const, words })),
  ];
}

function isNotUsual(fingerprint: string): boolean {
  return fingerprint !== redHatReleaseKey;
}
