import type { Answer } from '../http/faults.ts';
import { json } from '../registry/tokenServer.ts';

/** A refusal as an API server says it: thrown anywhere, it becomes a Status object. */
export class Refusal extends Error {
  readonly status: number;
  readonly reason: string;
  readonly details: object;

  constructor(status: number, reason: string, message: string, details: object = {}) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.details = details;
  }

  /** The Status object. */
  get object(): object {
    const { status: code, reason, message, details } = this;
    return { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Failure', message, reason, details, code };
  }
}

/** The answer of a refusal, in the words and codes of a real server. */
export function statusAnswer(refusal: Refusal, headers: Record<string, string> = {}): Answer {
  return json(refusal.status, refusal.object, headers);
}

/** What a server answers that has too much to do; `retryAfter` in seconds. */
export function tooManyRequests(retryAfter: number): Answer {
  const message = 'the server has received too many requests and has asked us to try again later';
  return statusAnswer(new Refusal(429, 'TooManyRequests', message), { 'retry-after': String(retryAfter) });
}
