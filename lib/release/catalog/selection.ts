import { PluginError, nameSome } from '#errors';
import { satisfiesRange, isSameVersion } from '../version.ts';
import type { Catalog, CatalogBundle, CatalogPackage, ChannelEntry, Requirement } from './catalog.ts';

/** An operator to take from a catalog. */
export interface OperatorRequest {
  readonly name: string;
  /** By default the operator's default channel; `*` for each of its channels. */
  readonly channel?: string;
  /** The installed version: its updates up to the head are taken. Without it only the head is. */
  readonly installed?: string;
  /** The versions of the channel to take, such as `>=0.1.0 <0.2.0`: these only. Excludes `installed`. */
  readonly range?: string;
}

/** A selected operator. */
export interface SelectedPackage {
  readonly name: string;
  readonly defaultChannel: string;
  readonly channels: ReadonlyMap<string, readonly ChannelEntry[]>;
  readonly bundles: readonly CatalogBundle[];
  /** The operators that need it, if it was not asked for. */
  readonly neededBy: readonly string[];
}

/** The selected part of a catalog. */
export interface Selection {
  readonly packages: readonly SelectedPackage[];
  /** What selected operators need and the catalog lacks, in words. */
  readonly missing: readonly string[];
}

interface Choice {
  /** The names of the selected bundles, by channel. The first channel is the default one. */
  readonly channels: Map<string, Set<string>>;
  readonly neededBy: Set<string>;
}

/**
 * Selects operators with their updates, and the operators that these need, by name or by the APIs that they provide.
 * Throws `not-found` for an unknown operator, channel or version, with the nearest names.
 */
export function selectOperators(catalog: Pick<Catalog, 'packages'>, requests: readonly OperatorRequest[]): Selection {
  const choices = new Map<string, Choice>();
  const missing = new Set<string>();
  for (const request of requests) {
    const owner = findPackage(catalog, request.name);
    const all = new Set([owner.defaultChannel, ...owner.channels.keys()]);
    for (const channel of request.channel === '*' ? all : [request.channel])
      choose(choices, owner, { ...request, channel });
  }
  const pending = listChosen(catalog, choices);
  const done = new Set<CatalogBundle>();
  for (let next = pending.pop(); next; next = pending.pop()) {
    const { owner, bundle } = next;
    if (done.has(bundle)) continue;
    done.add(bundle);
    for (const requirement of bundle.requires) {
      if (!satisfy(catalog, choices, owner, requirement)) {
        missing.add(`${bundle.name} needs ${describeRequirement(requirement)}`);
      }
    }
    pending.push(...listChosen(catalog, choices).filter((chosen) => !done.has(chosen.bundle)));
  }
  const packages = [...choices].map(([name, choice]) => describeChoice(findPackage(catalog, name), choice));
  return { packages: packages.sort((a, b) => (a.name < b.name ? -1 : 1)), missing: [...missing].sort() };
}

function findPackage({ packages }: Pick<Catalog, 'packages'>, name: string): CatalogPackage {
  const operator = packages.get(name);
  if (operator && isPackageName(name)) return operator;
  const names = [...packages.keys()].sort();
  const near = names.filter((each) => each.includes(name) || name.includes(each));
  throw new PluginError('not-found', `the catalog has no operator ${name}`, {
    hint: `It has ${nameSome(near.length > 0 ? near : names, 20)}.`,
  });
}

// The name becomes a folder in the image.
const isPackageName = (name: string): boolean => /^[0-9A-Za-z][\w.-]{0,252}$/.test(name);

/** Adds the updates of an operator in a channel, or its versions in a range. `from` is a version to take too. */
function choose(
  choices: Map<string, Choice>,
  owner: CatalogPackage,
  { channel: channelName, installed, range, from }: Omit<OperatorRequest, 'name'> & { readonly from?: string },
): Choice {
  const channel = findChannel(owner, channelName);
  const first = from === undefined ? undefined : findVersion(owner, channel, from);
  const version = installed ?? from;
  const latest = version === undefined ? [channel.head] : findUpdates(owner, channel, version);
  const updates = range === undefined ? latest : findVersions(owner, channel, range);
  const choice = choices.get(owner.name) ?? { channels: new Map<string, Set<string>>(), neededBy: new Set<string>() };
  choices.set(owner.name, choice);
  const names = choice.channels.get(channel.name) ?? new Set();
  choice.channels.set(channel.name, names);
  for (const { name } of [...(first ? [first] : []), ...updates]) {
    if (!owner.bundles.has(name)) {
      throw new PluginError('invalid-file', `the catalog has no bundle ${name}, which channel ${channel.name} names`);
    }
    names.add(name);
  }
  return choice;
}

function listChosen(
  catalog: Pick<Catalog, 'packages'>,
  choices: ReadonlyMap<string, Choice>,
): { readonly owner: CatalogPackage; readonly bundle: CatalogBundle }[] {
  return [...choices].flatMap(([name, { channels }]) => {
    const owner = findPackage(catalog, name);
    const names = new Set([...channels.values()].flatMap((each) => [...each]));
    return [...names].flatMap((each) => {
      const bundle = owner.bundles.get(each);
      return bundle ? [{ owner, bundle }] : [];
    });
  });
}

/** Selects what a requirement needs, if nothing selected provides it. Returns false if the catalog lacks it. */
function satisfy(
  catalog: Pick<Catalog, 'packages'>,
  choices: Map<string, Choice>,
  owner: CatalogPackage,
  requirement: Requirement,
): boolean {
  if (requirement.kind === 'all') return requirement.of.every((each) => satisfy(catalog, choices, owner, each));
  if (requirement.kind === 'any') return requirement.of.some((each) => satisfy(catalog, choices, owner, each));
  const provides = (bundle: CatalogBundle, provider: CatalogPackage): boolean =>
    requirement.kind === 'api'
      ? bundle.provides.includes(requirement.api)
      : provider.name === requirement.name && satisfiesRange(bundle.version, requirement.range);
  if (listChosen(catalog, choices).some((chosen) => provides(chosen.bundle, chosen.owner))) return true;
  for (const rank of ['default', 'other'] as const) {
    for (const provider of catalog.packages.values()) {
      for (const channel of listChannels(provider, rank)) {
        const entry = channel.entries.find(({ name }) => {
          const bundle = provider.bundles.get(name);
          return bundle !== undefined && provides(bundle, provider);
        });
        if (!entry) continue;
        choose(choices, provider, { channel: channel.name, from: entry.name }).neededBy.add(owner.name);
        return true;
      }
    }
  }
  return false;
}

/**
 * Returns the default channel of an operator, or its other channels by name. OLM prefers the default channel, but
 * resolves a dependency from every channel (operator-framework/operator-lifecycle-manager, resolver.go). Leaves out
 * malformed channels.
 */
function listChannels(owner: CatalogPackage, rank: 'default' | 'other'): Channel[] {
  const names = [...owner.channels.keys()].filter((name) => (name === owner.defaultChannel) === (rank === 'default'));
  return names.sort().flatMap((name) => {
    try {
      return [findChannel(owner, name)];
    } catch (error) {
      if (error instanceof PluginError) return [];
      throw error;
    }
  });
}

function describeChoice(owner: CatalogPackage, { channels, neededBy }: Choice): SelectedPackage {
  const [first = ''] = channels.keys();
  const names = new Set([...channels.values()].flatMap((each) => [...each]));
  return {
    name: owner.name,
    defaultChannel: channels.has(owner.defaultChannel) ? owner.defaultChannel : first,
    channels: new Map([...channels].map(([name, kept]) => [name, keepEntries(owner, findChannel(owner, name), kept)])),
    bundles: [...owner.bundles.values()].filter(({ name }) => names.has(name)),
    neededBy: [...neededBy].sort(),
  };
}

function describeRequirement(requirement: Requirement): string {
  if (requirement.kind === 'package') return `operator ${requirement.name} ${requirement.range}`.trimEnd();
  if (requirement.kind === 'api') return `an operator with ${requirement.api}`;
  const joint = requirement.kind === 'all' ? ' and ' : ' or ';
  return requirement.of.map(describeRequirement).join(joint);
}

/** A channel of an operator, from its head down: the order in which OLM prefers updates. */
interface Channel {
  readonly name: string;
  readonly head: ChannelEntry;
  readonly entries: readonly ChannelEntry[];
}

/**
 * Finds a channel, by default the operator's own. Its head is the entry that no other entry replaces or skips
 * (operator-registry, `alpha/model`). Throws `not-found` with the existing channels, and `invalid-file` without a
 * single head.
 */
function findChannel({ name, channels, defaultChannel }: CatalogPackage, channel = defaultChannel): Channel {
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
function findUpdates(owner: CatalogPackage, channel: Channel, installed: string): ChannelEntry[] {
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
function findVersion(owner: CatalogPackage, { entries }: Channel, version: string): ChannelEntry | undefined {
  return entries.find(({ name }) => name === version || isSameVersion(versionOf(owner, name), version));
}

/**
 * Finds the entries whose versions are in a range. Throws `not-found` with the versions of the channel if there are
 * none.
 */
function findVersions(owner: CatalogPackage, { name, entries }: Channel, range: string): ChannelEntry[] {
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
 * (operator-registry, `validateReplacesChain`). If a left-out entry led to one, its next update skips it by name.
 * Without the head of the channel, the nearest entry is the head.
 */
function keepEntries(owner: CatalogPackage, channel: Channel, names: ReadonlySet<string>): ChannelEntry[] {
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
