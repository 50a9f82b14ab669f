import { PluginError } from '../../errors.ts';
import { nameSome } from '../../failures.ts';
import { isSameVersion, satisfiesRange } from '../version.ts';
import type { CatalogPackage, ChannelEntry } from './package.ts';

/** A channel of an operator, from its head down: the order in which OLM prefers updates. */
export interface Channel {
  readonly name: string;
  readonly head: ChannelEntry;
  readonly entries: readonly ChannelEntry[];
}

/**
 * Finds a channel, by default the operator's own. Its head is the entry that no other entry replaces or skips
 * (operator-registry, `alpha/model`). Throws `not-found` with the existing channels, and `invalid-file` without a single head.
 */
export function findChannel({ name, channels, defaultChannel }: CatalogPackage, channel = defaultChannel): Channel {
  const entries = channels.get(channel);
  if (!entries) {
    const what = channel === '' ? 'no default channel' : `no channel ${channel}`;
    throw new PluginError('not-found', `operator ${name} has ${what}`, {
      hint: `Name one of its channels: ${nameSome([...channels.keys()].sort(), 20)}.`,
    });
  }
  const older = new Set(entries.flatMap(({ replaces, skips }) => [replaces, ...skips]));
  const [head, ...others] = entries.filter((entry) => !older.has(entry.name));
  if (!head || others.length > 0) {
    throw new PluginError('invalid-file', `channel ${channel} of operator ${name} has no single newest version`);
  }
  return { name: channel, head, entries: orderFrom(head, entries) };
}

/** Orders entries from the head: its chain, then the rest. */
function orderFrom(head: ChannelEntry, entries: readonly ChannelEntry[]): ChannelEntry[] {
  return [...new Set([...chainFrom(head, entries), ...entries])];
}

/** Returns the entries that a head replaces, one after another, and the head. */
function chainFrom(head: ChannelEntry, entries: readonly ChannelEntry[]): ReadonlySet<ChannelEntry> {
  const byName = new Map(entries.map((entry) => [entry.name, entry]));
  const chain = new Set<ChannelEntry>();
  for (let entry: ChannelEntry | undefined = head; entry && !chain.has(entry);) {
    chain.add(entry);
    entry = byName.get(entry.replaces ?? '');
  }
  return chain;
}

/**
 * Lists the entries that an installed version is updated through, in that order, to the head. From each version OLM
 * chooses the entry nearest to the head that replaces or skips it, by its name or by its version. Throws `not-found`
 * for a version without such a path.
 */
export function findUpdates(owner: CatalogPackage, channel: Channel, installed: string): ChannelEntry[] {
  const path: ChannelEntry[] = [];
  let version = installed;
  let current = findVersion(owner, channel, installed)?.name ?? findFormer(channel, installed) ?? installed;
  while (current !== channel.head.name) {
    const rest = channel.entries.filter((entry) => !path.includes(entry));
    const next = findNext(rest, current, version);
    if (!next) throw noPath(owner, channel, installed);
    path.push(next);
    current = next.name;
    version = versionOf(owner, current);
  }
  return path.length > 0 ? path : [channel.head];
}

/** Finds the entry of a version, or of a bundle by its name. */
export function findVersion(owner: CatalogPackage, { entries }: Channel, version: string): ChannelEntry | undefined {
  return entries.find(({ name }) => name === version || isSameVersion(versionOf(owner, name), version));
}

/** Finds the entries whose versions are in a range. Throws `not-found` with the versions of the channel if there are none. */
export function findVersions(owner: CatalogPackage, { name, entries }: Channel, range: string): ChannelEntry[] {
  const matchingEntries = entries.filter((entry) => satisfiesRange(versionOf(owner, entry.name), range));
  if (matchingEntries.length > 0) return matchingEntries;
  const versions = entries.map((entry) => versionOf(owner, entry.name));
  throw new PluginError('not-found', `operator ${owner.name} has no version ${range} in channel ${name}`, {
    hint: `The channel has ${nameSome(versions, 20)}.`,
  });
}

/** Finds the name of a version that the catalog no longer has, and that entries replace or skip: `web.v1.0.0`. */
function findFormer({ entries }: Channel, version: string): string | undefined {
  const names = entries.flatMap(({ replaces = '', skips }) => [replaces, ...skips]);
  return names.find((name) => name.endsWith(`.v${version}`) || name.endsWith(`.${version}`));
}

/** Finds the first of some entries that updates a bundle, by its name or by its version. */
function findNext(entries: readonly ChannelEntry[], current: string, version: string): ChannelEntry | undefined {
  return entries.find(
    ({ name, replaces, skips, skipRange }) =>
      name !== current &&
      (replaces === current || skips.includes(current) || (skipRange && satisfiesRange(version, skipRange))),
  );
}

function versionOf({ bundles }: CatalogPackage, name: string): string {
  return bundles.get(name)?.version ?? name;
}

function noPath(owner: CatalogPackage, { name, head, entries }: Channel, installed: string): PluginError {
  const versions = entries.map((entry) => versionOf(owner, entry.name));
  const message = `operator ${owner.name} has no update from ${installed} to ${head.name} in channel ${name}`;
  const hint = `Choose another channel, or check the installed version. The channel has ${nameSome(versions, 20)}.`;
  return new PluginError('not-found', message, { hint });
}

/**
 * Returns some entries of a channel, as a channel that opm accepts. It refuses entries that the head does not lead to
 * (operator-registry, `validateReplacesChain`). If a left-out entry led to one, its next update skips it by name. Without
 * the head of the channel, the nearest entry is the head.
 */
export function keepEntries(owner: CatalogPackage, channel: Channel, names: ReadonlySet<string>): ChannelEntry[] {
  const kept = channel.entries.filter(({ name }) => names.has(name));
  const [head = channel.head] = kept;
  const chain = chainFrom(head, kept);
  const skipped = new Set(kept.flatMap(({ skips }) => skips));
  const added = new Map<ChannelEntry, string[]>();
  for (const entry of kept.filter((each) => !chain.has(each) && !skipped.has(each.name))) {
    const next = findNext(kept, entry.name, versionOf(owner, entry.name)) ?? head;
    added.set(next, [...(added.get(next) ?? []), entry.name]);
  }
  return kept.map((entry) => ({ ...entry, skips: [...entry.skips, ...(added.get(entry) ?? [])] }));
}
