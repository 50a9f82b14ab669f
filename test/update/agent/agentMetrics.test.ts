import { expect } from 'chai';
import { formatMetrics, metricsToken, serveMetrics, type AgentState } from '../../../lib/update/agent/agentMetrics.ts';
import { makeContext } from '../../support/context.ts';

const token = '0123456789abcdef0123';
const state: AgentState = {
  progress: { name: 'a', phase: 'Loading', imagesLoaded: 3, imagesTotal: 9, bytes: 5000, free: 2 ** 40 },
  reportAge: 1.5,
  mirror: { versions: ['4.20.3', '4.20.8'], requests: 7, lacking: ['a/b@sha256:c'] },
};

describe('serveMetrics', () => {
  it('serves the state in the format of Prometheus, only with the derived token', async () => {
    let current: AgentState | undefined;
    const server = await serveMetrics(() => current, { host: '127.0.0.1', port: 0, token }, makeContext());
    const ask = (authorization: string): Promise<Response> =>
      fetch(`${server.url}/metrics`, { headers: { authorization } });
    try {
      const own = `Bearer ${metricsToken(token)}`;
      expect(metricsToken(token)).not.to.include(token);
      for (const wrong of ['', 'Bearer x', `Bearer ${token}`]) expect((await ask(wrong)).status).to.equal(401);
      expect(await (await ask(own)).text()).not.to.match(/^[^#]/m);
      current = state;
      const answer = await ask(own);
      expect([answer.status, answer.headers.get('content-type')]).to.deep.equal([
        200,
        'text/plain; version=0.0.4; charset=utf-8',
      ]);
      expect(await answer.text()).to.equal(formatMetrics(state));
    } finally {
      await server.close();
    }
  });

  it('names phase, images, bytes, free space and the age of the report', () => {
    const samples = formatMetrics(state)
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'));
    expect(samples).to.deep.equal([
      'upgrade_bundle_node_phase{phase="Waiting"} 0',
      'upgrade_bundle_node_phase{phase="Loading"} 1',
      'upgrade_bundle_node_phase{phase="Loaded"} 0',
      'upgrade_bundle_node_phase{phase="Pinned"} 0',
      'upgrade_bundle_node_phase{phase="Failed"} 0',
      'upgrade_bundle_images 9',
      'upgrade_bundle_images_loaded 3',
      'upgrade_bundle_content_bytes 5000',
      'upgrade_bundle_free_bytes 1099511627776',
      'upgrade_bundle_mirror_releases 2',
      'upgrade_bundle_mirror_requests 7',
      'upgrade_bundle_mirror_missing_images 1',
      'upgrade_bundle_report_age_seconds 1.5',
    ]);
  });
});
