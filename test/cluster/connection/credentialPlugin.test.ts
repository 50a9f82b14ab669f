import { expect } from 'chai';
import { runCredentialPlugin } from '../../../lib/cluster/connection/credentialPlugin.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('runCredentialPlugin', () => {
  const group = 'client.authentication.k8s.io';
  const environment = { PATH: process.env['PATH'] };
  const run = (script: string, more: object = {}, options: object = {}) =>
    runCredentialPlugin(
      { apiVersion: `${group}/v1`, command: 'sh', args: ['-c', script], ...more },
      {},
      { environment, ...options },
      makeContext(),
    );
  /** Returns the input of the plugin, which it returns as its token. */
  const echo =
    `printf '{"kind":"ExecCredential","apiVersion":"%s","status":{"token":"%s"}}' "$VERSION" "$(printf %s ` +
    '"$KUBERNETES_EXEC_INFO" | base64 -w0)"';
  const infoFor = async (version: string, more: object, options: object) => {
    const env = [{ name: 'VERSION', value: `${group}/${version}` }];
    const { token = '' } = await run(echo, { apiVersion: `${group}/${version}`, env, ...more }, options);
    return JSON.parse(Buffer.from(token, 'base64').toString()) as { apiVersion: string; spec: object };
  };

  it('speaks v1 and v1beta1, and no other version', async () => {
    for (const version of ['v1', 'v1beta1']) {
      expect((await infoFor(version, {}, {})).apiVersion).to.equal(`${group}/${version}`);
    }
    for (const apiVersion of [`${group}/v1alpha1`, undefined]) {
      const failure = await failureOf(run('true', { apiVersion }), 'bad-credentials-file');
      expect(failure.message).to.contain(`apiVersion${apiVersion === undefined ? '' : ` ${apiVersion}`}`);
      expect(failure.hint).to.contain(`${group}/v1beta1`);
    }
  });

  it('lets it ask at a terminal, if there is one and it may', async () => {
    for (const [interactiveMode, hasTerminal, interactive] of [
      ['Always', true, true],
      ['IfAvailable', true, true],
      ['IfAvailable', false, false],
      ['Never', true, false],
      [undefined, true, true],
    ] as const) {
      const { spec } = await infoFor('v1', { interactiveMode }, { hasTerminal });
      expect(spec, `${String(interactiveMode)} ${String(hasTerminal)}`).to.deep.equal({ interactive });
    }
    const failure = await failureOf(run('true', { interactiveMode: 'Always' }), 'bad-credentials-file');
    expect(failure.message).to.contain('needs a terminal');
  });

  it('ends one that hangs although its child holds the output open', async () => {
    const failure = await failureOf(run('sleep 5 & sleep 60', {}, { timeout: 200 }), 'bad-credentials-file');
    expect(failure.message).to.contain('sh did not end within 0.2 s');
    expect(failure.hint).to.contain('by hand');
  });

  it('ends one that prints without end', async () => {
    const failure = await failureOf(
      run('while :; do echo 0123456789012345678901234567890123456789; done'),
      'bad-credentials-file',
    );
    expect(failure.message).to.contain('printed more than 1048576 bytes');
  });
});
