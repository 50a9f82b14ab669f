import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import { makeAuthority } from '../support/certificates.ts';
import { findFreePort } from '../support/freePort.ts';
import { executeProgram } from '../support/program/execution.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';

/** A command line, the end of its name, and the lines that answer it. */
type Mistake = readonly [program: 'bundle' | 'mirror', line: string, answer: RegExp];

// Each answer names the mistake and the way on.
describe('a mistake on the command line', () => {
  let folder: string;
  before(async () => {
    folder = await makeFolder();
    await writeFile(join(folder, 'upgrade.tar.yaml'), 'kind: UpgradeBundle\n');
    await writeFile(join(folder, 'none.kubeconfig'), 'apiVersion: v1\nkind: Config\n');
  });
  after(() => removeFolder(folder));

  const answer = async (program: Mistake[0], line: string, env: NodeJS.ProcessEnv = {}): Promise<string> => {
    const name = program === 'bundle' ? 'oc-adm_upgrade_bundle' : 'oc-adm_release_mirror_config';
    const environment = { PATH: process.env['PATH'], HOME: folder, ...env };
    const { code, stderr } = await executeProgram(name, line.split(' '), { cwd: folder, env: environment });
    expect(code, stderr).not.to.equal(0);
    return stderr;
  };

  const mistakes: readonly Mistake[] = [
    [
      'bundle',
      'create v4.20.3 --output=.',
      /^error \([a-z-]+\): “v4\.20\.3” is not the version .*\nhint: Leave out the “v”: 4\.20\.3\.\n/,
    ],
    ['bundle', 'create latest --output=.', /^hint: Give all three numbers, .*\ntry: --channel$/m],
    [
      'bundle',
      'create 4.20 --output=. --graph-url=http://127.0.0.1:1',
      /^hint: Give all three numbers, such as 4\.20\.0\.\ntry: --channel$/m,
    ],
    [
      'bundle',
      'create 4.20.3 --version=4.20.3 --output=.',
      /^error \([a-z-]+\): give only one of the version 4\.20\.3 and --version\n/,
    ],
    [
      'bundle',
      'create 4.20.3 --channel=stable-4.20 --output=.',
      /^error \([a-z-]+\): give only one of the version 4\.20\.3 and --channel\n/,
    ],
    [
      'bundle',
      'create 4.20.3,4.20.3 --output=.',
      /^error \(usage\): 4\.20\.3 is given twice\nhint: Name each release once: 4\.20\.3\.\n/,
    ],
    ['bundle', 'create 4.20.3 4.20.3 --output=.', /^error \(usage\): “4\.20\.3” is given twice\n/],
    [
      'bundle',
      'create 4.20.3 4.20.4 --output=.',
      /^error \(usage\): “4\.20\.4” is one argument too many\nhint: Several releases .*: 4\.20\.3,4\.20\.4\.\n/,
    ],
    ['bundle', 'diff 4.20.3 4.20.4 4.20.5', /^error \(usage\): “4\.20\.5” is one argument too many\nhint: '/],
    ['mirror', '4.20.3,4.20.4,4.20.3 --to-dir=m', /: 4\.20\.3 is given twice\nhint: .* once: 4\.20\.3,4\.20\.4\.\n/],
    ['mirror', '4.20.3 4.20.3 --to-dir=m', /^error \(usage\): “4\.20\.3” is given twice\n/],
    ['mirror', '4.20.3 --version=4.20.4 --to-dir=m', /: the release is given twice: as the argument, .*--version\n/],
    ['mirror', '4.20.3 --channel=stable-4.20 --to-dir=m', /: releases are named twice: by --channel, and in another/],
    [
      'bundle',
      'verify upgrade.tar.yaml',
      /^error \([a-z-]+\): upgrade\.tar\.yaml is not .*\nhint: Give the bundle: upgrade\.tar\n/,
    ],
    [
      'bundle',
      'create 4.20.3 --output=. --idms-file=/absent',
      /^error \(not-found\): --idms-file: there is no file \/absent\nhint: Check the path\./,
    ],
    [
      'bundle',
      'create 4.20.3 --output=/proc/x',
      /^error \([a-z-]+\): the folder \/proc\/x cannot be created: .*\nhint: .*\ntry: --output\n/,
    ],
    [
      'bundle',
      'create --release-image=quay.io/Big/Release:1 --output=.',
      /^error \([a-z-]+\): .*“Big\/Release” cannot be a repository, because .* lower case$/m,
    ],
    [
      'bundle',
      'status --kubeconfig=/absent',
      /^error \(not-found\): --kubeconfig: there is no file \/absent\nhint: Check the path\./,
    ],
    [
      'bundle',
      'install -o yaml',
      /^error \([a-z-]+\): nodes cannot run .* --executable\nhint: .*\.tar\.gz .*A cluster is needed too/,
    ],
    [
      'bundle',
      'inspect 4.20.3',
      /: 4\.20\.3 is a version; a bundle is a file.*\nhint: Create its bundle first\. .*diff/,
    ],
    [
      'bundle',
      'inspect quay.io/openshift-release-dev/ocp-release:4.20.3-x86_64',
      /:4\.20\.3-x86_64 is an image; a bundle .*\nhint: Create its bundle first\./,
    ],
    ['bundle', 'verify https://site.test/upgrade.tar', / is a URL; .*\nhint: Download the bundle first\./],
    ['bundle', 'receipt check r.json --key=upgrade.tar.yaml', /“r\.json” is one argument too many/],
    ['bundle', 'receipt --key=upgrade.tar.yaml', /<file> is missing/],
    ['bundle', 'apply upgrade.tar -f upgrade.tar.yaml', /: give only one of .* and --filename$/m],
    ['mirror', 'apply config -f other', /: give only one of the argument and --filename$/m],
    ['bundle', 'apply', /^error \(usage\): no bundle is given: name a file, or give --digest\n/],
    ['bundle', 'create 4.20.3 --volume-size=4', /: a volume of 4 bytes is smaller .*\nhint: Add the unit: 4G\.\n/],
    ['bundle', 'verify upgrade.tar --to', /^error \(usage\): unknown option --to\nhint: '/],
    ['mirror', 'lst', /^error \([a-z-]+\): unknown command “lst”\nhint: Did you mean list\?\n/],
    ['mirror', 'mirror 4.20.3', /^hint: Did you mean “oc adm-release-mirror-config 4\.20\.3”\?$/m],
  ];
  for (const [program, line, expected] of mistakes) {
    it(`is answered: ${line}`, async () => {
      expect(await answer(program, line)).to.match(expected);
    });
  }

  it('is answered: a port that nothing listens on', async () => {
    const port = await findFreePort();
    const said = await answer('bundle', `create --release-image=127.0.0.1:${port}/a:1 --output=. --retry-timeout=1s`);
    expect(said).to.contain(`127.0.0.1:${port} cannot be reached: connection refused; nothing listens on that port\n`);
  });

  it('is answered: a proxy that nothing listens on', async () => {
    const proxy = `127.0.0.1:${await findFreePort()}`;
    const env = { HTTPS_PROXY: `http://me:secret@${proxy}` };
    const said = await answer('bundle', 'create --release-image=registry.test/a:1 --output=.', env);
    expect(said).to.contain(
      `error (unreachable): the proxy ${proxy} for registry.test cannot be reached: connection refused`,
    );
    expect(said)
      .to.match(/^hint: Correct HTTPS_PROXY, or name registry\.test in NO_PROXY/m)
      .and.not.to.contain('secret');
  });

  it('is answered: a certificate for other names', async () => {
    await using authority = await makeAuthority();
    const { certificate: cert, key } = await authority.issue({ hosts: ['registry.test', '*.apps.test', '10.0.0.1'] });
    const server = createServer({ cert, key });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const authorities = `--certificate-authority=${authority.certificateFile}`;
    try {
      const said = await answer('bundle', `create --release-image=${host}/a:1 --output=. ${authorities}`);
      expect(said).to.contain(`${host} is for another name: registry.test, *.apps.test, 10.0.0.1\n`);
    } finally {
      server.close();
    }
  });

  it('is answered: the CA of a registry for that of the API server', async () => {
    await using authority = await makeAuthority();
    await using other = await makeAuthority();
    const { certificate: cert, key } = await authority.issue({ hosts: ['127.0.0.1'] });
    const server = createServer({ cert, key }, (_, response) => void response.writeHead(404).end('{}'));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const address = `--server=https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const statusWith = (option: string, { certificateFile }: { readonly certificateFile: string }): Promise<string> =>
      answer('bundle', `status ${address} --token=t ${option}=${certificateFile}`);
    try {
      expect(await statusWith('--cluster-certificate-authority', other)).to.match(
        /^error \(tls\): .*\n.*\ntry: --cluster-certificate-authority, --insecure-skip-tls-verify$/m,
      );
      for (const option of ['--cluster-certificate-authority', '--certificate-authority']) {
        expect(await statusWith(option, authority), option).not.to.contain('tls');
      }
    } finally {
      server.close();
    }
  });

  it('is answered: a device that does not exist', async function () {
    if (process.getuid?.() !== 0) this.skip();
    const said = await answer('bundle', `watch --once --device=/absent --mount-dir=${join(folder, 'mounts')}`);
    expect(said).to.match(/^error \([a-z-]+\): --device=\/absent does not exist\nhint: lsblk lists/);
  });
});
