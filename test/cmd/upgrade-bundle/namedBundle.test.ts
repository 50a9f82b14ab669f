import { readFile } from 'node:fs/promises';
import { PassThrough, Readable } from 'node:stream';
import { expect } from 'chai';
import { Terminal } from '../../../cmd/cli/terminal.ts';
import { checkNodePath, followLine, identifyNamed, requireOneBundle } from '../../../cmd/upgrade-bundle/namedBundle.ts';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { readLine } from '../../support/program/readLine.ts';

const digest = `sha256:${'a'.repeat(64)}` as const;

type Named = Parameters<typeof requireOneBundle>[0];
/** Returns the arguments of a command line of `apply`. */
const read = async (...words: string[]): Promise<Named> =>
  (await readLine('upgrade-bundle', 'apply', ...words)) as Named;

describe('a path on a node', () => {
  it('begins at the root, and has no dots in place of a folder', () => {
    for (const path of ['/dev/sdb', '/var/mnt/usb/a..b.tar', '/var/.hidden']) checkNodePath(path);
    for (const [path, hint] of [
      ['sda', 'Give the path as the node has it'],
      ['/dev/../sda', 'Give the path as the node has it'],
      ['/dev/.', 'Give the path as the node has it'],
      ['nfs://x/y', 'Mount it on the node first'],
    ] as const)
      expect(() => {
        checkNodePath(path);
      }, path)
        .to.throw(`“${path}” is not an absolute path of a node`)
        .with.property('hint')
        .that.contains(hint);
  });
});

describe('a bundle that a command line names', () => {
  let made: TestBundle;
  let started: StartedCluster;
  before(async () => {
    made = await makeBundle({ version: '4.19.4' });
    started = await startCluster({ openshift: '4.19.3' });
  });
  after(async () => {
    await started.close();
    await made.remove();
  });

  it('is a file, by the argument or -f, or only a digest', async () => {
    expect(requireOneBundle(await read('a.tar'))).to.equal('a.tar');
    expect(requireOneBundle(await read('-f', 'a.tar'))).to.equal('a.tar');
    expect(requireOneBundle(await read(`--digest=${digest}`))).to.equal(undefined);
    const [none, both] = [await read(), await read('a.tar', '-f', 'b.tar')];
    expect(() => requireOneBundle(none)).to.throw('no bundle is given: name a file, or give --digest');
    expect(() => requireOneBundle(both)).to.throw('give only one of the argument and --filename');
  });

  const identify = async (named: string | undefined, words: readonly string[], input = '') => {
    const context = makeContext();
    const terminal = await Terminal.open({ stdout: new PassThrough(), stderr: new PassThrough(), environment: {} });
    const session = { context, terminal, stdin: Readable.from([Buffer.from(input)]) };
    const trust = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
    const { request, evidence } = await identifyNamed(started.cluster, named, await read(...words, ...trust), session);
    const warnings = context.lines.filter((line) => line.startsWith('warn'));
    return { request, isVerified: evidence !== undefined, warnings };
  };
  const identity = () => ({ name: '4.19.4-x86-64', digest: made.result.digest, version: '4.19.4' });

  it('is verified, with its release and its place on a node', async () => {
    const { request, isVerified, warnings } = await identify(made.path, ['--device=/dev/sdb']);
    const { digest: releaseDigest } = made.release;
    expect(request).to.deep.equal({ ...identity(), releaseDigest, file: '/dev/sdb' });
    expect([isVerified, warnings]).to.deep.equal([true, []]);
  });

  it('is only stated by the file beside it, also on the standard input', async () => {
    const beside = await readFile(`${made.path}.yaml`, 'utf8');
    for (const [named, shown] of [
      [`${made.path}.yaml`, `${made.path}.yaml`],
      ['-', 'the standard input'],
    ] as const) {
      const { request, isVerified, warnings } = await identify(named, [], beside);
      expect(request).to.include(identity());
      expect(isVerified).to.equal(false);
      expect(warnings).to.deep.equal([
        `warn: nothing is verified: ${shown} only states 4.19.4, ${made.result.digest}. Give the bundle itself to check it`,
      ]);
    }
  });

  it('may be a digest alone', async () => {
    const { request, isVerified } = await identify(undefined, [`--digest=${hexOf(digest)}`]);
    expect([request.digest, request.version, isVerified]).to.deep.equal([digest, undefined, false]);
  });

  it('is refused with another digest than its own', async () => {
    await identify(made.path, [`--digest=${made.result.digest}`]);
    const { message, hint } = await failureOf(identify(made.path, [`--digest=${digest}`]), 'digest-mismatch');
    expect(message).to.equal(`${made.path} has another digest than --digest: ${made.result.digest}`);
    expect(hint).to.contain('Do not apply the bundle');
    await failureOf(read('--digest=1234'), 'usage');
    expect(started.server.requests.filter(({ method }) => method !== 'GET')).to.deep.equal([]);
  });

  it('is refused if the standard input is not that of a bundle, or too large', async () => {
    await failureOf(identify('-', [], 'nothing'));
    await failureOf(identify('-', [], ' '.repeat(1024 ** 2 + 1)), 'too-large');
  });

  it('is followed by the command for this cluster, from its phase on', () => {
    expect(followLine(undefined, ' --context=a')).to.equal(
      'The agents look for it now. Follow it: oc adm-upgrade-bundle status -w --context=a',
    );
    expect(followLine('Loading', '', true)).to.equal(
      'It is Loading. The update waits for oc adm-upgrade-bundle resume. Follow it: oc adm-upgrade-bundle status -w',
    );
  });
});
