import { expect } from 'chai';
import type { FetchFile } from '../../../lib/content/http/fetchFile.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import type { PluginError } from '../../../lib/errors.ts';

/** The repository of the releases in these graphs. */
export const graphRepository = 'quay.io/openshift-release-dev/ocp-release';
/** Returns the pullspec of a version in these graphs. */
export const payloadOf = (name: string): string => `${graphRepository}@${digestOf(name)}`;

/** Returns an update graph with these versions, in the form of servers. */
export const graphOf = (...versions: string[]): object => ({
  version: 1,
  nodes: versions.map((version) => ({ version, payload: payloadOf(version), metadata: {} })),
  edges: [[0, 1]],
});

/** A graph server. It responds by channel, and records requests. */
export class Graphs {
  readonly asked: string[] = [];
  readonly #channels: Record<string, object | string>;
  readonly #failures: Record<string, PluginError>;

  constructor(channels: Record<string, object | string>, failures: Record<string, PluginError> = {}) {
    this.#channels = channels;
    this.#failures = failures;
  }

  readonly fetchFile: FetchFile = async (url, limit) => {
    expect(limit).to.equal(64 * 1024 * 1024);
    const channel = url.searchParams.get('channel') ?? '';
    const arch = url.searchParams.get('arch') ?? '';
    this.asked.push(`${url.host} ${channel} ${arch}`);
    const failure = this.#failures[url.host];
    if (failure) throw failure;
    const answer = this.#channels[channel] ?? this.#channels[`${channel} ${arch}`] ?? graphOf();
    return answer === '404' ? undefined : Buffer.from(typeof answer === 'string' ? answer : JSON.stringify(answer));
  };
}
