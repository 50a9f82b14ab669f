import { expect } from 'chai';
import { readLine } from '../../support/program/readLine.ts';

describe('the options of mirroring', () => {
  it('have the names of oc adm release mirror', async () => {
    const read = await readLine(
      ...(['release-mirror-config', '-a', 'package.json', '--from=4.12.4', '--from-dir=.', '--to-dir=m'] as const),
      ...['--to=r.test/a', '--to-image-stream=s', '--to-mirror', '--to-release-image=r.test/a:b', '--insecure'],
      ...['--apply-release-image-signature', '--certificate-authority=package.json', '--dry-run', '--overwrite'],
      ...['--keep-manifest-list', '--max-per-registry=3', '--print-mirror-instructions=ICSP', '--skip-verification'],
      ...['--release-image-signature-to-dir=s', '--skip-release-image'],
    );
    expect(read).to.include({
      ...{ pullSecret: 'package.json', from: '4.12.4', fromDir: '.', toDir: 'm', to: 'r.test/a', toMirror: true },
      ...{ toImageStream: 's', toReleaseImage: 'r.test/a:b', applyReleaseImageSignature: true, dryRun: 'client' },
      ...{ keepManifestList: true, maxPerRegistry: 3, printMirrorInstructions: 'icsp', skipReleaseImage: true },
    });
    expect(await readLine('release-mirror-config', '--registry-config=package.json')).to.deep.include({
      pullSecret: 'package.json',
      printMirrorInstructions: 'idms',
    });
  });

  it('take the release by --version too, and images by both of their names', async () => {
    const words = ['--additional-image=a.test/b:1', '--extra-image=a.test/b:2', '-f', 'package.json'];
    expect(await readLine('release-mirror-config', '--version=4.12.4', ...words.slice(0, 2))).to.deep.include({
      version: '4.12.4',
      additionalImage: ['a.test/b:1', 'a.test/b:2'],
    });
  });
});
