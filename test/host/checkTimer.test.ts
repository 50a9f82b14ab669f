import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { formatCheckTimer } from '../../lib/host/checkTimer.ts';
import { requirePeer, run } from '../support/peers.ts';

describe('formatCheckTimer', () => {
  it('makes a service and a timer that systemd reads without a word', async function () {
    requirePeer(this, 'systemd-analyze');
    const folder = await mkdtemp(join(tmpdir(), 'timer-'));
    try {
      const [, service = '', timer = ''] = formatCheckTimer('/bin/true', false, 'registry.example.com:8443/a/b').split(
        /^# \/etc\/systemd\/system\/.*$/m,
      );
      const paths = ['service', 'timer'].map((kind) => join(folder, `oc-mirror-registry-check.${kind}`));
      await writeFile(paths[0] ?? '', service);
      await writeFile(paths[1] ?? '', timer);
      const { code, stderr } = await run('systemd-analyze', ['verify', '--man=no', ...paths]);
      expect([code, stderr.split('\n').filter((line) => line.includes('oc-mirror-registry'))]).to.deep.equal([0, []]);
      expect(service).to.include(' "--bundle=registry.example.com:8443/a/b"\n');
      expect(service).to.include('plan --detailed-exitcode').and.not.to.include('upgrade --');
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});
