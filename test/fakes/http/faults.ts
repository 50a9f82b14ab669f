import type { IncomingHttpHeaders } from 'node:http';
import type { Body } from '../registry/content.ts';

/** An answer before any fault touched it. Header names in lower case; Content-Length is added when it is sent. */
export interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: Body | string;
  /** Whether a Range header of the request is honoured. */
  ranged?: boolean;
}

/** One request as a server saw it, and what became of it. */
export interface RequestRecord {
  readonly method: string;
  /** The path, percent-decoded. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** The status that was sent; 0 while, or if, none was. */
  status: number;
  /** Bytes of the answer's body that were handed to the connection. */
  bytesSent: number;
  /** Bytes of the request's body that were read. */
  bytesReceived: number;
}

/** Which requests a fault is for: an expression over `GET /path?query`, or a predicate. */
export type Match = RegExp | ((request: RequestRecord) => boolean);

/** What goes wrong with a request. Fields combine; several matching faults are merged, the later ones on top. */
export interface Fault {
  /** Milliseconds to wait before anything else. */
  delay?: number;
  /** Accept the request and `hold` the connection for ever (a black hole), or `reset` it. */
  noAnswer?: 'hold' | 'reset';
  /** Answer with this instead: a 429 with Retry-After, a 500 with an HTML body, an endless body. */
  answer?: Answer;
  /** Redirect to another place; `to` is a location, or makes one from the path of the request. */
  redirect?: { status: 301 | 302 | 303 | 307 | 308; to: string | ((path: string) => string) };
  /** Headers (lower case) to set in the answer, or with null to leave out: `docker-content-digest`, `content-type`, `connection`. */
  headers?: Record<string, string | null>;
  /** Announce the whole body and send only `after` bytes of it: then reset or end the connection, or fall silent. */
  cut?: { after: number; how: 'reset' | 'end' | 'stall' };
  /** Bytes to add to the true Content-Length. Negative: the body ends there too; positive: the connection ends before the length is reached. */
  lengthOff?: number;
  /** Invert the byte at this offset of the content. */
  flipByte?: number;
  /** Answer a Range request with 200 and everything. */
  ignoreRange?: boolean;
  /** The Content-Range header of a 206, whatever was sent. */
  contentRange?: string;
  /** Answer a Range request from this offset instead of the one asked for, and say so. */
  rangeStart?: number;
  /** Send the body with Content-Encoding: gzip, though nobody asked for it. */
  gzip?: boolean;
  /** Send the body chunked, without Content-Length. */
  chunked?: boolean;
  /** Send the body no faster than this. */
  bytesPerSecond?: number;
  /** Refuse request bodies larger than this many bytes with 413: with 0 on PUT, uploads have to come by PATCH. */
  maxBody?: number;
  /** Reset the connection when this many bytes of the request's body have been read. */
  resetUploadAfter?: number;
  /** Answer a mount as if the registry did not know the parameter: 202 and an upload. */
  ignoreMount?: boolean;
}

/** How often a fault strikes: `times` requests (default: all) after the first `after` (default 0) that match. */
export interface FaultLimits {
  times?: number;
  after?: number;
}

/** A fault in place: how many requests it has struck. */
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

  /** All faults that strike this request, merged; counts the strike. */
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
