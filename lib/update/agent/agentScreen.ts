import type { Context } from '#context';
import { isPluginError, messageOf } from '#errors';
import { type Host, formatText, LoginScreen, NodeSignal, type SignalKind } from '#node/machine';
import type { ScreenReason } from '../screen/screenCode.ts';
import { describeScreen, type Screen, type ScreenFacts } from '../screen/screenText.ts';
import type { UnusableKind } from './agentMedia.ts';

/** Settings of what an agent says to a person in front of its node. */
export interface AgentScreenOptions {
  /** Whether the login screen shows it. */
  readonly console: boolean;
  /** Also a signal for a node without a screen. */
  readonly signal?: SignalKind | undefined;
}

const minute = 60_000;
/** How long the end of an update is shown, and that a drive cannot be used, in milliseconds. */
const times = { end: 24 * 60 * minute, drive: minute, unreachable: 15 * minute } as const;

const driveReasons: Readonly<Record<UnusableKind, ScreenReason>> = {
  empty: 'driveEmpty',
  filesystem: 'driveFormat',
  silent: 'driveSilent',
  unreadable: 'driveUnreadable',
  damaged: 'driveDamaged',
  folder: 'driveFolder',
};

/**
 * Says on the login screen of a node what its agent does, and by a signal if one is chosen. Numbers alone change once a
 * minute, because some consoles print each text below the last one. The end of an update is shown only after another
 * text, so that it does not appear again after each boot. An agent that is killed leaves its text to the next one.
 */
export class AgentScreen {
  readonly #options: AgentScreenOptions;
  readonly #login: LoginScreen;
  readonly #signal: NodeSignal | undefined;
  readonly #now: () => number;
  /** When each drive that cannot be used was first seen. */
  readonly #seen = new Map<string, number>();
  #shown: { readonly screen: Screen | undefined; readonly at: number } | undefined;
  #reachedAt: number;
  #warned = '';

  /** `now` is a clock in milliseconds. */
  constructor(host: Host, options: AgentScreenOptions, now = () => performance.now()) {
    this.#options = options;
    this.#login = new LoginScreen(host);
    this.#signal = options.signal === undefined ? undefined : new NodeSignal(host, options.signal);
    this.#now = now;
    this.#reachedAt = now();
  }

  /** Shows facts, and for a minute that a drive cannot be used. Failures are logged. */
  async show(facts: ScreenFacts, unusable: ReadonlyMap<string, UnusableKind>, context: Context): Promise<void> {
    this.#reachedAt = this.#now();
    const kind = this.#findNewDrive(unusable);
    const about =
      kind === undefined ? facts : ({ phase: facts.phase, drive: 'none', reason: driveReasons[kind] } as const);
    await this.#write(describeScreen(about), isEnd(about), context);
  }

  /** Notes that the cluster was not reached. Says so after a while. */
  async noteFailure(context: Context): Promise<void> {
    if (this.#now() - this.#reachedAt < times.unreachable) return;
    await this.#write(describeScreen({ drive: 'none', reason: 'unreachable' }), false, context);
  }

  /** Removes a text that is false without the agent. Others stay: the node may be shut down during the update. */
  async close(context: Context): Promise<void> {
    // The agent is interrupted already.
    const own = { ...context, signal: new AbortController().signal };
    if (this.#shown?.screen?.isMomentary) await this.#write(undefined, false, own);
    else await this.#signal?.give('quiet', own);
  }

  /** Returns why a drive that was inserted within the last minute cannot be used. */
  #findNewDrive(unusable: ReadonlyMap<string, UnusableKind>): UnusableKind | undefined {
    const now = this.#now();
    for (const drive of this.#seen.keys()) if (!unusable.has(drive)) this.#seen.delete(drive);
    for (const drive of unusable.keys()) this.#seen.set(drive, this.#seen.get(drive) ?? now);
    return [...unusable].findLast(([drive]) => now - (this.#seen.get(drive) ?? 0) < times.drive)?.[1];
  }

  async #write(screen: Screen | undefined, isEnd: boolean, context: Context): Promise<void> {
    try {
      await this.#change(screen, isEnd, context);
      this.#warned = '';
    } catch (error) {
      if (isPluginError(error, 'interrupted')) throw error;
      // No update fails for its screen.
      const message = messageOf(error);
      if (message !== this.#warned) context.log('warn', `the login screen of the node cannot be changed: ${message}`);
      this.#warned = message;
    }
  }

  async #change(wanted: Screen | undefined, isEnd: boolean, context: Context): Promise<void> {
    if (!this.#options.console) {
      if (!this.#shown) await this.#login.remove(context);
      this.#shown = { screen: wanted, at: this.#now() };
      await this.#signal?.give(wanted?.signal ?? 'quiet', context);
      return;
    }
    const present = await this.#login.read();
    const isOver = isEnd && wanted && !isStillShown(wanted, present);
    const screen = isOver ? undefined : wanted;
    await this.#signal?.give(screen?.signal ?? 'quiet', context);
    const text = screen && formatText(screen.lines);
    if (text === present?.text) {
      this.#shown ??= { screen, at: this.#now() };
      return;
    }
    if (screen && present && this.#isSoon(screen)) return;
    if (screen) await this.#login.show(screen.lines, context);
    else await this.#login.clear(context);
    this.#shown = { screen, at: this.#now() };
  }

  /** Returns whether a screen has only other numbers than the one of less than a minute ago. */
  #isSoon(screen: Screen): boolean {
    const last = this.#shown;
    if (!last?.screen || !screen.isMomentary || this.#now() - last.at >= minute) return false;
    const kind = ({ lines }: Screen): string => lines.join('\n').replace(/\d+ %.*/g, '');
    return kind(last.screen) === kind(screen);
  }
}

/** Returns whether the end of an update is to be shown: after another text, and for a day. */
function isStillShown({ lines }: Screen, present: Awaited<ReturnType<LoginScreen['read']>>): boolean {
  if (!present) return false;
  return present.text !== formatText(lines) || present.age < times.end;
}

function isEnd({ phase, reason, report }: ScreenFacts): boolean {
  // The drive is inserted.
  if (report === 'writing' || report === 'written') return false;
  return (phase === 'Completed' && reason === undefined) || reason === 'aborted' || reason === 'superseded';
}
