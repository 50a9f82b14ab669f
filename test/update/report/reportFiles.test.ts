import { mkdir, readdir, rename, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import * as openpgp from 'openpgp';
import { formatSiteReport } from '../../../lib/config/siteReport.ts';
import { encryptTo, readEncryptionKey } from '../../../lib/release/signature/encryption.ts';
import { exportPublicKey } from '../../../lib/release/sigstore/envelope.ts';
import { readPolicyKey } from '../../../lib/release/sigstore/trustRoot.ts';
import {
  findReports,
  readReportKeyFile,
  type FoundReport,
  type ReportTrust,
} from '../../../lib/update/report/reportFiles.ts';
import {
  makeReportKey,
  makeReportRegion,
  makeUpdateReport,
  signUpdateReport,
} from '../../support/content/updateReport.ts';
import { makeContext } from '../../support/context.ts';
import { runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const key = makeReportKey();
const keys = [readPolicyKey(exportPublicKey(key))];
const report = makeUpdateReport(key);
const signed = signUpdateReport(report, key);

let folder: string;
const at = (name: string): string => join(folder, name);
const makeFolders = (): void => {
  beforeEach(async () => {
    folder = await makeFolder();
  });
  afterEach(() => removeFolder(folder));
};

describe('findReports', () => {
  makeFolders();
  const find = async (path: string, trust: ReportTrust = { keys }, context = makeContext()) => {
    const found: FoundReport[] = [];
    for await (const each of findReports(path, trust, context)) found.push(each);
    return found;
  };
  const problemOf = async (path: string, trust?: ReportTrust) => {
    const [{ problem, opened } = expect.fail('nothing is found')] = await find(path, trust);
    expect(opened).to.equal(undefined);
    return problem ?? expect.fail('there is no problem');
  };

  it('finds the report in a file, and who signed it', async () => {
    await writeFile(at('x'), signed);
    const opened = { report, signer: keys[0]?.fingerprint, trusted: true };
    expect(await find(at('x'))).to.deep.equal([{ where: at('x'), envelope: signed, opened }]);
    const claimed = await find(at('x'), { keys: [] });
    expect(claimed[0]?.opened).to.deep.equal({ ...opened, trusted: false });
  });

  it('finds all reports in the file of a partition, the newest first, also by another name', async () => {
    const older = makeUpdateReport(key, { sequence: 2, created: '2026-11-19T10:00:00Z' });
    await writeFile(at('oc-reports.img'), await makeReportRegion(key, [older, report]));
    const sequences = async (path: string) => (await find(path)).map(({ opened }) => opened?.report.sequence);
    expect(await sequences(folder)).to.deep.equal([3, 2]);
    expect((await find(folder))[0]?.where).to.match(/oc-reports\.img \(update-report-c0ffee00-.*\.json\)$/);
    await rename(at('oc-reports.img'), at('copy.img'));
    expect(await sequences(at('copy.img'))).to.deep.equal([3, 2]);
    await writeFile(at('oc-reports.img'), '');
    expect(await find(at('oc-reports.img'))).to.deep.equal([]);
  });

  it('reads the files of a folder that may be reports, and none in folders below', async () => {
    await mkdir(at('below.json'));
    for (const name of ['update-report-a', 'b.json', 'README.txt', 'below.json/c.json'])
      await writeFile(at(name), signed);
    expect((await find(folder)).map(({ where }) => where)).to.have.members([at('update-report-a'), at('b.json')]);
  });

  it('opens no link, pipe or huge file in a folder, and says why', async () => {
    await symlink('/etc/passwd', at('link.json'));
    await runSuccessfully('mkfifo', [at('pipe.json')]);
    await writeFile(at('huge.json'), '');
    await truncate(at('huge.json'), 2 ** 40);
    await writeFile(at('nested.json'), '[['.repeat(100_000));
    await writeFile(at('noise.gpg'), Buffer.from([0xc1, 0xff, 0xff, 0xff]));
    await writeFile(at('good.json'), signed);
    const found = await find(folder);
    const problems = Object.fromEntries(
      found.map(({ where, problem }) => [where.slice(folder.length + 1), problem?.message.slice(where.length)]),
    );
    expect(problems).to.deep.equal({
      'link.json': ': it is not a regular file, and is not opened',
      'pipe.json': ': it is not a regular file, and is not opened',
      'huge.json': ': it has more than 4190208 bytes',
      'nested.json': ' is not the report of an update',
      'noise.gpg': ' is encrypted',
      'good.json': undefined,
    });
    expect((await problemOf(at('huge.json'))).message).to.equal(`${at('huge.json')}: it has more than 4190208 bytes`);
  });

  it('decrypts a report with the private key, and asks for one', async () => {
    const { privateKey, publicKey } = await openpgp.generateKey({ userIDs: [{ name: 'engineer' }] });
    await writeFile(at('engineer'), publicKey);
    await writeFile(at('private'), privateKey);
    const recipient = await readEncryptionKey(at('engineer'));
    await writeFile(at('x.gpg'), await encryptTo(recipient.key, signed, 'x'));
    const problem = await problemOf(at('x.gpg'));
    expect(problem).to.include({ code: 'not-readable', message: `${at('x.gpg')} is encrypted` });
    expect(problem.settings).to.deep.equal(['decryptionKey']);
    const [found] = await find(at('x.gpg'), { keys, decryptionKey: at('private') });
    expect(found?.opened?.report).to.deep.equal(report);
    // What is kept of it needs no key.
    expect(found?.envelope).to.deep.equal(signed);
  });

  it('says of another file what to give instead', async () => {
    await writeFile(at('site'), formatSiteReport(report.site));
    await writeFile(at('text'), 'hello\n');
    expect((await problemOf(at('site'))).hint).to.match(/^If preflight exported it .* it has the key/);
    expect((await problemOf(at('text'))).hint).to.match(/^Give a drive with reports/);
  });

  it('refuses a missing path, and ends if it is interrupted', async () => {
    await failureOf(find(at('missing')), 'not-found');
    await writeFile(at('a.json'), signed);
    const context = makeContext();
    context.interrupt();
    await failureOf(find(folder, { keys }, context), 'interrupted');
    expect(await readdir(folder)).to.deep.equal(['a.json']);
  });
});

describe('readReportKeyFile', () => {
  makeFolders();

  it('reads a public key, or that in the report of a site with the time of that', async () => {
    await writeFile(at('site.pub'), exportPublicKey(key));
    const { fingerprint, since } = await readReportKeyFile(at('site.pub'));
    expect([fingerprint, since]).to.deep.equal([keys[0]?.fingerprint, undefined]);
    await writeFile(at('site.json'), formatSiteReport({ ...report.site, created: '2026-11-25T10:00:00Z' }));
    expect(await readReportKeyFile(at('site.json'))).to.include({ fingerprint, since: '2026-11-25T10:00:00Z' });
  });

  it('refuses a file without a key, and says how to get one', async () => {
    const { reportKey: _, ...keyless } = report.site;
    await writeFile(at('keyless.json'), formatSiteReport(keyless));
    await writeFile(at('text'), 'hello\n');
    for (const file of ['text', 'keyless.json']) {
      const { message, hint } = await failureOf(readReportKeyFile(at(file)), 'invalid-file');
      expect(message).to.match(/has no key for reports: ./);
      expect(hint).to.equal('Allow reports at the site, and export a report of the site there.');
    }
  });
});
