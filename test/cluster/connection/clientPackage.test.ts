import { stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { expect } from 'chai';
import { bundle } from '../../../.config/bundle.ts';
import type { connectCluster } from '../../../lib/cluster/client.ts';
import { startSocksProxy } from '../../fakes/http/proxies.ts';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeContext } from '../../support/context.ts';
import { makeKubeconfigFolder } from '../../support/kubeconfig.ts';

/** Returns an OIDC token that expires in an hour. */
function makeIdToken(): string {
  const parts = [{ alg: 'none' }, { exp: Math.floor(Date.now() / 1000) + 3600 }];
  return [...parts.map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')), ''].join('.');
}

describe('@kubernetes/client-node in an executable', () => {
  it('connects through SOCKS with a token of OIDC, without the modules that no command uses', async () => {
    await using folder = await makeKubeconfigFolder();
    const file = join(folder.folder, 'client.cjs');
    const unused = /node_modules\/undici\/|client-node\/dist\/(?:index|exec|watch|cp)\.js/;
    expect((await bundle('lib/cluster/client.ts', file)).filter((path) => unused.test(path))).to.deep.equal([]);
    // With its types of objects and clients of APIs, it would be 1 MB.
    expect((await stat(file)).size).to.be.lessThan(600_000);
    const bundled = createRequire(import.meta.url)(file) as { readonly connectCluster: typeof connectCluster };
    const token = makeIdToken();
    const server = await startApiServer({ tokens: new Map([[token, 'me']]) });
    const proxy = await startSocksProxy(() => server.host);
    try {
      const cluster = { server: 'http://api.cluster.test:6443', 'proxy-url': `socks5h://${proxy.host}` };
      const user = { 'auth-provider': { name: 'oidc', config: { 'id-token': token } } };
      const kubeconfig = await folder.write({ cluster, user });
      using connected = await bundled.connectCluster({ kubeconfig, environment: {} }, makeContext());
      expect((await connected.version()).gitVersion).to.equal('v1.27.3');
      expect(proxy.targets).to.deep.equal(['api.cluster.test:6443']);
    } finally {
      await proxy.stop();
      await server.stop();
    }
  });
});
