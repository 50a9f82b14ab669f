import { mkdir, readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import * as openpgp from 'openpgp';
import { formatSiteReport } from '../../../lib/config/siteReport.ts';
import { nameUpdateReport } from '../../../lib/config/updateReport.ts';
import { encryptTo, readEncryptionKey } from '../../../lib/release/signature/encryption.ts';
import { exportPublicKey } from '../../../lib/release/sigstore/envelope.ts';
import {
  makeReportKey,
  makeReportRegion,
  makeUpdateReport,
  signUpdateReport,
} from '../../support/content/updateReport.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const program = new URL('../../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url).pathname;

describe('report', () => {
  const key = makeReportKey();
  let folder: string;
  const at = (name: string): string => join(folder, name);
  const run = (...args: string[]): Promise<Execution> => executeProgram(program, ['report', ...args]);

  beforeEach(async () => {
    folder = await makeFolder();
    await mkdir(at('reports'));
    await writeFile(at('site.pub'), exportPublicKey(key));
  });
  afterEach(() => removeFolder(folder));

  const put = async (name: string, changes: Parameters<typeof makeUpdateReport>[1] = {}): Promise<void> =>
    writeFile(at(name), signUpdateReport(makeUpdateReport(key, changes), key));

  it('show says who signed, how old a report is, and that a newer one may be withheld', async () => {
    await put('a.json');
    const { stdout, code } = await run('show', at('a.json'), `--key=${at('site.pub')}`);
    expect(code).to.equal(0);
    expect(stdout).to.match(/Signature +good, by the given key [0-9a-f]{64}/);
    expect(stdout).to.match(
      /Made +2026-11-20T10:00:00Z by the clock of the cluster: \d+ (days|h\d+m) old, because an update has ended/,
    );
    expect(stdout).to.include('3. A newer report may have been withheld, which no signature shows');
    expect(stdout).to.include('4.19.4 Completed 2026-11-20, in 1h10m');
    expect(stdout).to.include('/var/lib/oc-upgrade-bundle/backups/1');
    const claimed = await run('show', at('a.json'));
    expect(claimed.stdout).to.include('by the key that the report itself names');
  });

  it('show takes the key from the report that preflight exported, and warns of a report that is older', async () => {
    await put('a.json');
    const { site } = makeUpdateReport(key);
    await writeFile(at('site.json'), formatSiteReport({ ...site, created: '2026-11-25T10:00:00Z' }));
    const { stdout, stderr, code } = await run('show', at('a.json'), `--key=${at('site.json')}`, '-o', 'json');
    expect(code).to.equal(0);
    expect(JSON.parse(stdout)).to.include({ trusted: true });
    expect(stderr).to.include('the report is older than the report of the site that has its key');
  });

  it('show refuses a forged report, and a file that is none', async () => {
    const forger = makeReportKey();
    await writeFile(at('a.json'), signUpdateReport(makeUpdateReport(forger), forger));
    const { code, stderr } = await run('show', at('a.json'), `--key=${at('site.pub')}`);
    expect(code).to.equal(1);
    expect(stderr).to.include('has no signature by a given key');
    await writeFile(at('b.json'), '{}');
    expect((await run('show', at('b.json'))).stderr).to.include('is not the report of an update');
  });

  it('show gives advice for files that are truncated or changed', async () => {
    await put('a.json');
    const bytes = await readFile(at('a.json'));
    await writeFile(at('cut.json'), bytes.subarray(0, bytes.length / 2));
    expect((await run('show', at('cut.json'))).stderr).to.contain('hint: Copy the report from the drive again');
    const [, payload = ''] = /"payload": "(.*)"/.exec(bytes.toString()) ?? [];
    const other = Buffer.from(payload, 'base64').toString().replace('"sequence":3', '"sequence":4');
    await writeFile(at('cut.json'), bytes.toString().replace(payload, Buffer.from(other).toString('base64')));
    const changed = await run('show', at('cut.json'), `--key=${at('site.pub')}`);
    expect(changed.stderr).to.match(/by a given key, nor by the key that it names, .*\nhint: Copy the report/);
  });

  it('show decrypts a report, and does not wait for one that unpacks to gigabytes', async () => {
    const { privateKey, publicKey } = await openpgp.generateKey({ userIDs: [{ name: 'engineer' }] });
    await writeFile(at('engineer.asc'), publicKey);
    await writeFile(at('private.asc'), privateKey);
    const { key: recipient } = await readEncryptionKey(at('engineer.asc'));
    const report = makeUpdateReport(key);
    const name = nameUpdateReport(report);
    await writeFile(at(`${name}.gpg`), await encryptTo(recipient, signUpdateReport(report, key), name));
    const hidden = await run('show', at(`${name}.gpg`));
    expect(hidden.stderr).to.include('is encrypted').and.include('--decryption-key');
    const shown = await run('show', at(`${name}.gpg`), `--decryption-key=${at('private.asc')}`, '-o', 'json');
    expect(JSON.parse(shown.stdout)).to.have.nested.property('report.cluster', report.cluster);
    const message = await openpgp.createMessage({ binary: Buffer.alloc(300 * 1024 * 1024) });
    const config = { preferredCompressionAlgorithm: openpgp.enums.compression.zlib };
    const encryptionKeys = await openpgp.readKey({ armoredKey: publicKey });
    const bomb: unknown = await openpgp.encrypt({ message, encryptionKeys, format: 'binary', config });
    await writeFile(at('bomb.gpg'), bomb as Uint8Array);
    const failed = await run('show', at('bomb.gpg'), `--decryption-key=${at('private.asc')}`);
    expect(failed.code).to.equal(1);
    expect(failed.stderr).to.match(/cannot be decrypted|more than/);
  }).timeout(60_000);

  it('show reads the file of a partition, keeps its reports, and unpacks their files', async () => {
    const gathered = [
      { path: 'objects/upgradebundle.json', content: '[]' },
      { path: '../../escape', content: 'x' },
    ];
    const made = [{}, { reason: 'Failed' as const, gathered }].map((more, index) =>
      makeUpdateReport(key, { sequence: index + 1, created: `2026-11-2${index + 1}T10:00:00Z`, ...more }),
    );
    const region = await makeReportRegion(key, made);
    await writeFile(at('reports/oc-reports.img'), region);
    const { stdout, code } = await run('show', at('reports'), `--key=${at('site.pub')}`, `--dest-dir=${at('kept')}`);
    expect(code).to.equal(0);
    expect(stdout).to.include('because an update has failed').and.include('1 older report');
    const kept = (await readdir(at('kept'), { recursive: true })).sort();
    const names = ['20261121T100000Z', '20261122T100000Z'].map(
      (time) => `update-report-c0ffee00-0000-4000-8000-000000000001-${time}`,
    );
    expect(kept).to.include.members(names.map((name) => `${name}.json`));
    expect(kept.filter((name) => name.includes('escape'))).to.deep.equal([]);
    expect(await readFile(at(`kept/${names[1] ?? ''}/objects/upgradebundle.json`), 'utf8')).to.equal('[]');
    expect((await readdir(folder)).sort()).to.deep.equal(['kept', 'reports', 'site.pub']);
  });

  it('list has one line for each cluster, and for each file that cannot be used', async () => {
    await put('reports/update-report-a-1.json', { cluster: 'a', sequence: 1 });
    await put('reports/update-report-a-2.json', { cluster: 'a', sequence: 2, created: '2026-11-22T10:00:00Z' });
    const findings = [{ severity: 'blocker', object: 'node/b', message: 'is not\u001b[2J ready' }];
    await put('reports/update-report-b-1.json', { cluster: 'b', site: { findings } as never });
    await writeFile(at('reports/x.json'), '[['.repeat(100_000));
    const { stdout, code } = await run('list', at('reports'), `--key=${at('site.pub')}`);
    expect(code).to.equal(0);
    expect(stdout).to.match(/^2 clusters, and 1 file that cannot be used/);
    expect(stdout).to.match(/^a +4\.19\.4 +4\.19\.4 Completed 2026-11-20 +1h10m +40.0 GiB +\S+( \S+)? +trusted/m);
    expect(stdout).to.match(/^b .* node\/b is not\ufffd\[2J ready/m);
    const json = JSON.parse((await run('list', at('reports'), '-o', 'json')).stdout) as { clusters: object[] };
    expect(json.clusters).to.have.length(3);
  });

  it('list -o csv gives a spreadsheet no formula, and -o html is one page', async () => {
    const findings = [{ severity: 'blocker', object: '=HYPERLINK("x")', message: '"<script>' }];
    await put('reports/update-report-b-1.json', { cluster: 'b', site: { findings } as never });
    const csv = (await run('list', at('reports'), '-o', 'csv')).stdout.trim().split('\n');
    expect(csv).to.have.length(2);
    expect(csv[1]).to.include(`"'=HYPERLINK(""x"") ""<script>"`);
    const page = (await run('list', at('reports'), '-o', 'html')).stdout;
    expect(page)
      .to.match(/^<!doctype html>/)
      .and.include('&#60;script&#62;');
  });
});
