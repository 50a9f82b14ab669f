import { createHash, randomUUID, type Hash } from 'node:crypto';
import type { Answer } from '../http/faults.ts';
import type { Exchange } from '../http/faultyServer.ts';
import { refuse } from './tokenServer.ts';

interface Upload {
  readonly repository: string;
  readonly chunks: Buffer[];
  readonly hash: Hash;
  length: number;
}

/**
 * The current blob uploads of a registry. As in the distribution registry, the Location of a response has a state and
 * is valid for one request only. A client that invents a Location, or uses an old one, is refused.
 */
export class Uploads {
  readonly #open = new Map<string, Upload>();
  readonly #origin: () => string;
  readonly #keep: (repository: string, digest: string, bytes: Buffer) => void;

  /**
   * `origin` is the prefix of every Location; '' for relative ones. `keep` gets each complete blob with a matching
   * digest.
   */
  constructor(origin: () => string, keep: (repository: string, digest: string, bytes: Buffer) => void) {
    this.#origin = origin;
    this.#keep = keep;
  }

  /** The number of uploads that were started, and neither completed nor cancelled. */
  get count(): number {
    return this.#open.size;
  }

  /** Starts an upload. With `?digest=` in the query, the body is the whole blob. */
  async begin(exchange: Exchange, repository: string): Promise<Answer> {
    const id = randomUUID();
    const upload: Upload = { repository, chunks: [], hash: createHash('sha256'), length: 0 };
    this.#open.set(id, upload);
    return exchange.query.has('digest') ? await this.#finish(exchange, id, upload) : this.#progress(202, id, upload);
  }

  /** Responds to PATCH, PUT, GET and DELETE of an upload. */
  async answer(exchange: Exchange, repository: string, id: string): Promise<Answer> {
    const upload = this.#open.get(id);
    if (upload?.repository !== repository) return refuse(404, 'BLOB_UPLOAD_UNKNOWN', 'blob upload unknown to registry');
    if (exchange.method === 'GET') return this.#progress(204, id, upload);
    if (exchange.method === 'DELETE') {
      this.#open.delete(id);
      return { status: 204 };
    }
    if (exchange.method !== 'PATCH' && exchange.method !== 'PUT') return refuse(405, 'UNSUPPORTED', 'not for uploads');
    if (exchange.query.get('_state') !== stateOf(upload)) {
      return refuse(400, 'BLOB_UPLOAD_INVALID', 'the location is not the last one given for this upload');
    }
    const start = /^(\d+)-\d+$/.exec(exchange.headers['content-range'] ?? '')?.[1];
    if (exchange.headers['content-range'] !== undefined && start !== String(upload.length)) {
      return { ...this.#progress(416, id, upload), ...refuse(416, 'RANGE_INVALID', 'the chunk is out of order') };
    }
    if (exchange.method === 'PUT') return await this.#finish(exchange, id, upload);
    await receive(exchange, upload);
    return this.#progress(202, id, upload);
  }

  async #finish(exchange: Exchange, id: string, upload: Upload): Promise<Answer> {
    const digest = exchange.query.get('digest') ?? '';
    await receive(exchange, upload);
    this.#open.delete(id);
    if (digest !== `sha256:${upload.hash.digest('hex')}`) {
      return refuse(400, 'DIGEST_INVALID', 'provided digest did not match uploaded content');
    }
    this.#keep(upload.repository, digest, Buffer.concat(upload.chunks));
    const location = `${this.#origin()}/v2/${upload.repository}/blobs/${digest}`;
    return { status: 201, headers: { location, 'docker-content-digest': digest } };
  }

  #progress(status: number, id: string, upload: Upload): Answer {
    return {
      status,
      headers: {
        location: `${this.#origin()}/v2/${upload.repository}/blobs/uploads/${id}?_state=${stateOf(upload)}`,
        range: `0-${Math.max(0, upload.length - 1)}`,
        'docker-upload-uuid': id,
      },
    };
  }
}

function stateOf(upload: Upload): string {
  return `at-${upload.length}`;
}

async function receive(exchange: Exchange, upload: Upload): Promise<void> {
  for await (const chunk of exchange.body()) {
    upload.chunks.push(chunk);
    upload.hash.update(chunk);
    upload.length += chunk.length;
  }
}
