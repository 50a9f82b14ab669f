import { AgentImages } from '../../../lib/update/agent/agentImages.ts';

/** The images of a node whose store has everything. */
export class CompleteImages extends AgentImages {
  override count({ metadata }: Parameters<AgentImages['count']>[0]) {
    return Promise.resolve({ loaded: metadata.images.length, total: metadata.images.length });
  }
}

/** The images of a node that lost one of them, which takes as long to load as a test wants. */
export class LossyImages extends CompleteImages {
  readonly loading = Promise.withResolvers<undefined>();
  #isLost = true;

  override async count(facts: Parameters<AgentImages['count']>[0]) {
    const { loaded, total } = await super.count(facts);
    return { loaded: this.#isLost ? loaded - 1 : loaded, total };
  }

  override async load(...[, , , context]: Parameters<AgentImages['load']>): Promise<void> {
    context.onEvent({ kind: 'image', name: 'the first of those that are present' });
    await this.loading.promise;
    this.#isLost = false;
  }
}
