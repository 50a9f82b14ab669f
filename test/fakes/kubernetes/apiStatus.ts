import type { Answer } from '../http/faults.ts';
import { json } from '../registry/tokenServer.ts';

/** A refusal of an API server. If thrown, it becomes a Status object. */
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

/** Returns the response for a refusal, with the message and code of a real server. */
export function statusAnswer(refusal: Refusal, headers: Record<string, string> = {}): Answer {
  return json(refusal.status, refusal.object, headers);
}

/** Returns the response of an overloaded server. `retryAfter` is in seconds. */
export function tooManyRequests(retryAfter: number): Answer {
  const message = 'the server has received too many requests and has asked us to try again later';
  return statusAnswer(new Refusal(429, 'TooManyRequests', message), { 'retry-after': String(retryAfter) });
}
