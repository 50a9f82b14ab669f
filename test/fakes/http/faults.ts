import type { IncomingHttpHeaders } from 'node:http';
import type { Body } from '../registry/content.ts';

/** A response before any fault is applied. Header names are in lower case. Content-Length is added when it is sent. */
export interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: Body | string;
  /** Whether a Range header of the request is honored. */
  ranged?: boolean;
}

/** A request that a server received, and its result. */
export interface RequestRecord {
  readonly method: string;
  /** The path, percent-decoded. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** The status that was sent; 0 if none was sent yet. */
  status: number;
  /** The bytes of the response body that were given to the connection. */
  bytesSent: number;
  /** The bytes of the request body that were read. */
  bytesReceived: number;
}

/** The requests of a fault: a regular expression for `GET /path?query`, or a predicate. */
export type Match = RegExp | ((request: RequestRecord) => boolean);

/** The faults of a request. Fields combine. Several matching faults are merged, and later ones have precedence. */
export interface Fault {
  /** Time to wait first, in milliseconds. */
  delay?: number;
  /** Accept the request and `hold` the connection without a limit (a black hole), or `reset` it. */
  noAnswer?: 'hold' | 'reset';
  /** Send this response instead: a 429 with Retry-After, a 500 with an HTML body, an endless body. */
  answer?: Answer;
  /** Redirect to another URL. `to` is the Location, or computes it from the path of the request. */
  redirect?: { status: 301 | 302 | 303 | 307 | 308; to: string | ((path: string) => string) };
  /**
   * Headers (lower case) to set in the response, or to remove with null: `docker-content-digest`, `content-type`,
   * `connection`.
   */
  headers?: Record<string, string | null>;
  /**
   * State the length of the whole body, and send only `after` bytes of it. Then reset or end the connection, or stall.
   */
  cut?: { after: number; how: 'reset' | 'end' | 'stall' };
  /**
   * Bytes to add to the true Content-Length. Negative: the body ends there too. Positive: the connection ends before
   * the length is reached.
   */
  lengthOff?: number;
  /** Invert the byte at this offset of the content. */
  flipByte?: number;
  /** Respond to a Range request with 200 and the whole content. */
  ignoreRange?: boolean;
  /** The Content-Range header of a 206, independent of the range. */
  contentRange?: string;
  /** Respond to a Range request from this offset instead of the requested one, and state it. */
  rangeStart?: number;
  /** Send the body with Content-Encoding: gzip, even if it was not requested. */
  gzip?: boolean;
  /** Send the body chunked, without Content-Length. */
  chunked?: boolean;
  /** The largest rate of the body in bytes per second. */
  bytesPerSecond?: number;
  /** Refuse request bodies larger than this many bytes with 413. With 0 on PUT, uploads must use PATCH. */
  maxBody?: number;
  /** Reset the connection after this many bytes of the request body. */
  resetUploadAfter?: number;
  /** Pass the body of such an upload to the command in a pod only when the next upload begins. */
  lateUpload?: boolean;
  /** Respond to a mount as a registry without support for it does: 202 and an upload. */
  ignoreMount?: boolean;
}

/**
 * The number of requests that a fault applies to: `times` (default: all) after the first `after` (default 0) that
 * match.
 */
export interface FaultLimits {
  times?: number;
  after?: number;
}

/** A planned fault, and the number of requests that it applied to. */
export interface FaultHandle {
  readonly hits: number;
}

interface PlannedFault {
  match: Match;
  fault: Fault;
  skip: number;
  left: number;
  hits: number;
}

/** The faults planned for one server. */
export class Faults {
  #planned: PlannedFault[] = [];

  add(match: Match, fault: Fault, { times = Infinity, after = 0 }: FaultLimits = {}): FaultHandle {
    const planned = { match, fault, skip: after, left: times, hits: 0 };
    this.#planned.push(planned);
    return planned;
  }

  clear(): void {
    this.#planned = [];
  }

  /** Returns all faults for this request, merged, and counts them. */
  strike(request: RequestRecord): Fault {
    const struck = this.#planned.filter((planned) => {
      if (planned.left <= 0 || !matches(planned.match, request)) return false;
      if (planned.skip > 0) {
        planned.skip -= 1;
        return false;
      }
      planned.left -= 1;
      planned.hits += 1;
      return true;
    });
    return Object.assign({}, ...struck.map(({ fault }) => fault)) as Fault;
  }
}

function matches(match: Match, request: RequestRecord): boolean {
  if (typeof match === 'function') return match(request);
  const query = request.query.toString();
  return match.test(`${request.method} ${request.path}${query && '?'}${query}`);
}
