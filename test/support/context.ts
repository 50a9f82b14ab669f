import { EventEmitter, once } from 'node:events';
import type { Context, TransferEvent } from '../../lib/context.ts';

/** A context that records log lines and events, and can be interrupted. */
export interface TestContext extends Context {
  readonly events: TransferEvent[];
  readonly lines: string[];
  interrupt(): void;
  /** Waits for a log line that contains a text. */
  untilLogged(text: string): Promise<void>;
}

/** Creates a context. `onEvent` also gets each event. */
export function makeContext(onEvent: (event: TransferEvent) => void = () => undefined): TestContext {
  const controller = new AbortController();
  const events: TransferEvent[] = [];
  const lines: string[] = [];
  const logged = new EventEmitter();
  return {
    signal: controller.signal,
    log: (level, message) => {
      lines.push(`${level}: ${message}`);
      logged.emit('line');
    },
    onEvent: (event) => {
      events.push(event);
      onEvent(event);
    },
    events,
    lines,
    interrupt: () => {
      controller.abort();
    },
    untilLogged: async (text) => {
      while (!lines.some((line) => line.includes(text))) await once(logged, 'line');
    },
  };
}
