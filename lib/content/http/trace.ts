import type { IncomingMessage } from 'node:http';
import { messageOf } from '../../errors.ts';
import { formatUrl } from './networkErrors.ts';

/** The part of a request that a trace shows. */
interface Traced {
  readonly method: string;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Logs one request in one line: its status, the bytes of both bodies, the time, and the error. The line has no
 * secrets.
 */
export class Trace {
  readonly #request: Traced;
  readonly #log: (message: string) => void;
  readonly #start = performance.now();
  #status: number | undefined;
  #bytes = 0;
  #ended = false;

  constructor(request: Traced, log: (message: string) => void) {
    this.#request = request;
    this.#log = log;
  }

  /** Records the status of the response. */
  begin(status: number): void {
    this.#status = status;
  }

  /** Counts received bytes of the body. */
  count(bytes: number): void {
    this.#bytes += bytes;
  }

  /** Counts all bytes of a response as they arrive. */
  watch(response: IncomingMessage): void {
    this.begin(response.statusCode ?? 0);
    // A listener for the body would start its flow.
    const push = response.push.bind(response);
    response.push = (chunk: Buffer | null, encoding) => {
      this.count(chunk?.length ?? 0);
      return push(chunk, encoding);
    };
  }

  /** Writes the line once. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    const { method, url, headers } = this.#request;
    const sent = headers['Content-Length'];
    const facts = [
      ...(sent === undefined ? [] : [`${sent} bytes sent`]),
      ...(this.#status === undefined ? [] : [String(this.#status), `${this.#bytes} bytes`]),
      `${Math.round(performance.now() - this.#start)} ms`,
      ...(error === undefined || error === null ? [] : [messageOf(error)]),
    ];
    this.#log(`${method} ${formatUrl(url)}: ${facts.join(', ')}`);
  }
}
