import type { IncomingMessage } from 'node:http';
import { messageOf } from '../errors.ts';
import { printable } from './networkErrors.ts';

/** What a trace is told of a request. */
interface Traced {
  readonly method: string;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
}

/** Tells what became of one request in one line: its status, the bytes of both bodies, how long it took, what went wrong. No secret is in it. */
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

  /** Notes the status of the response. */
  begin(status: number): void {
    this.#status = status;
  }

  /** Notes that so many bytes of the response’s body have come. */
  count(bytes: number): void {
    this.#bytes += bytes;
  }

  /** Notes all that comes of an response. */
  watch(response: IncomingMessage): void {
    this.begin(response.statusCode ?? 0);
    // A listener for the body would make it flow.
    const push = response.push.bind(response);
    response.push = (chunk: Buffer | null, encoding) => {
      this.count(chunk?.length ?? 0);
      return push(chunk, encoding);
    };
  }

  /** Writes the line; only the first call does. */
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
    this.#log(`${method} ${printable(url)}: ${facts.join(', ')}`);
  }
}
