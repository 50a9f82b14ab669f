import { isPluginError } from '../../errors.ts';
import { manifestSizeLimit, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import type { Digest } from '../oci/digest.ts';
import type { Reference } from '../oci/reference.ts';
import { errorCodesOf } from './auth/errorBody.ts';
import type { Reply } from './refusals.ts';
import { nextPage } from './tags.ts';
import type { Transport } from './transport.ts';

/** What registries without the API answer. */
const unsupportedStatuses = [400, 404, 405, 406, 410, 500, 501];

const pageCountLimit = 10;

/** The referrers API of registries (distribution-spec 1.1). One request shows whether a registry has it; one that lacks it is not asked again. */
export class ReferrersApi {
  readonly #transport: Transport;
  readonly #supported = new Map<string, Promise<boolean>>();

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists the manifests that refer to an image. Undefined if the registry lacks the API. Throws what the transport throws. */
  async list(
    repository: Pick<Reference, 'registry' | 'repository'>,
    subject: Digest,
  ): Promise<readonly Descriptor[] | undefined> {
    const { registry } = repository;
    const earlierAnswer = this.#supported.get(registry);
    if (earlierAnswer) return (await earlierAnswer) ? ((await this.#read(repository, subject)) ?? []) : undefined;
    const first = this.#read(repository, subject);
    // A failure that tells nothing about the API is told by the first question alone.
    const answer = first.then(
      (referrers) => referrers !== undefined,
      () => false,
    );
    this.#supported.set(registry, answer);
    return first;
  }

  async #read(
    { registry, repository }: Pick<Reference, 'registry' | 'repository'>,
    subject: Digest,
  ): Promise<readonly Descriptor[] | undefined> {
    const what = `referrers of ${subject}`;
    const referrers: Descriptor[] = [];
    let target: string | URL | undefined = `referrers/${subject}`;
    for (let page = 0; target !== undefined && page < pageCountLimit; page += 1) {
      const reply = await this.#request({ registry, repository, what, target });
      if (!reply) return undefined;
      if (reply.status >= 300) break;
      referrers.push(...parseManifest(reply.body, `the ${what} in ${registry}/${repository}`).manifests);
      target = nextPage(this.#transport, registry, reply, what);
    }
    return referrers;
  }

  async #request(request: {
    readonly registry: string;
    readonly repository: string;
    readonly what: string;
    readonly target: string | URL;
  }): Promise<Reply | undefined> {
    try {
      const accept = unsupportedStatuses;
      const reply = await this.#transport.send({
        ...request,
        method: 'GET',
        actions: 'pull',
        limit: manifestSizeLimit,
        accept,
      });
      // Quay has the API, and answers so if it has no such image.
      const isUnknown = errorCodesOf(reply).includes('MANIFEST_INVALID');
      return reply.status < 300 || isUnknown ? reply : undefined;
    } catch (error) {
      // Some registries and proxies deny what they do not know.
      if (isPluginError(error, 'denied') || isPluginError(error, 'unauthorized')) return undefined;
      throw error;
    }
  }
}
