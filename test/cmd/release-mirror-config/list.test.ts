import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { startSignatureServer, type SignatureServer } from '../../fakes/registry/signatureServer.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { makeArchive, soundFiles } from '../../support/release/graphArchive.ts';

describe('oc adm-release-mirror-config list', () => {
  let server: SignatureServer;
  let folder: string;
  let archive: string;
  const payload = `quay.io/a/release@sha256:${'1'.repeat(64)}`;
  before(async () => {
    const nodes = ['4.20.10', '4.20.9', '4.20.3'].map((version) => ({ version, payload }));
    server = await startSignatureServer(
      new Map([
        [
          '/graph',
          JSON.stringify({
            nodes,
            edges: [
              [2, 1],
              [1, 0],
            ],
          }),
        ],
      ]),
    );
    folder = await mkdtemp(join(tmpdir(), 'list-'));
    archive = join(folder, 'graph-data.tar');
    const more = {
      path: 'channels/fast-4.12.yaml',
      text: 'name: fast-4.12\nversions:\n- 4.12.10+amd64\n- 4.12.4\n- x\n',
    };
    await writeFile(archive, makeArchive([...soundFiles, more]));
  });
  after(() => Promise.all([server.stop(), rm(folder, { recursive: true })]));
  // Nothing listens there: the public graph cannot be asked.
  const env = { HTTPS_PROXY: 'http://127.0.0.1:1' };
  const list = (...args: string[]): Promise<Execution> =>
    executeProgram('oc-adm_release_mirror_config', ['list', ...args], { env });

  const answers: readonly (readonly [args: string, stdout: string])[] = [
    ['versions --channel=stable-4.20 --graph-url=GRAPH', '4.20.3\n4.20.9\n4.20.10\n'],
    ['channels --version=4.20.9 --graph-url=GRAPH', 'candidate-4.20\neus-4.20\nfast-4.20\nstable-4.20\n'],
    ['versions --channel=fast-4.12 --graph-data=ARCHIVE', '4.12.4\n4.12.10\n'],
    ['channels --graph-data=ARCHIVE', 'fast-4.12\nstable-4.12\n'],
    ['channels --version=4.12.10 --graph-data=ARCHIVE', 'fast-4.12\n'],
  ];
  const fill = (args: string): string[] =>
    args.split(' ').map((word) => word.replace('GRAPH', `${server.url}/graph`).replace('ARCHIVE', archive));
  for (const [args, expected] of answers) {
    it(`lists ${args}`, async () => {
      const { stdout, stderr } = await list(...fill(args));
      expect(stderr).to.equal('');
      expect(stdout).to.equal(expected);
      const json = await list(...fill(args), '-o', 'json');
      expect(JSON.parse(json.stdout)).to.deep.equal(expected.trimEnd().split('\n'));
    });
  }

  it('shows a path, in words and as JSON', async () => {
    const args = fill('paths --path-from=4.20.3 --to-version=4.20.10 --graph-url=GRAPH');
    const { stdout } = await list(...args);
    expect(stdout.split('\n').map((line) => line.split(' ')[0])).to.deep.equal([
      'VERSION',
      '4.20.3',
      '4.20.9',
      '4.20.10',
      '',
    ]);
    const { steps } = JSON.parse((await list(...args, '-o', 'json')).stdout) as { steps: object[] };
    expect(steps[1]).to.deep.equal({ version: '4.20.9', pullspec: payload, risks: [] });
  });

  it('names the missing option, and the lists that an archive lacks', async () => {
    for (const [args, code, message] of [
      ['versions', 2, 'needs --channel'],
      ['channels', 2, 'needs --version, or --graph-data'],
      ['paths --path-from=4.20.3', 2, 'needs --path-from and --to-version'],
      ['paths --path-from=4.20.3 --to-version=4.20.9 --graph-data=ARCHIVE', 2, 'has no paths'],
      ['paths --path-from=4.20.3 --to-version=4.20.9 --graph-data=ARCHIVE', 2, '--from-dir'],
      ['paths --path-from=4.20.3 --to-version=4.20.9 --from-dir=.', 2, 'only for list paths with --graph-data'],
      ['versions --channel=stable-4.99 --graph-data=ARCHIVE', 1, 'no channel “stable-4.99”'],
      ['channels --version=4.99.1 --graph-url=GRAPH', 1, 'no channel has 4.99.1'],
    ] as const) {
      const outcome = await list(...fill(args));
      expect(outcome.code, args).to.equal(code);
      expect(outcome.stderr).to.contain(message);
    }
  });
});
