import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { formatManifest } from '../../../lib/config/manifest.ts';
import { readKeys, redHatReleaseKey } from '../../../lib/release/signature/keyring.ts';
import { fingerprintOf } from '../../../lib/release/signature/signature.ts';
import { agentObjects } from '../../../lib/update/install/agentObjects.ts';
import {
  compareTrust,
  describeTrust,
  gatherTrust,
  noTrust,
  readTrust,
  type AgentTrust,
  type WantedTrust,
} from '../../../lib/update/install/agentTrust.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { expectGolden } from '../../support/program/golden.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { makeSigningKey, type SigningKey } from '../../support/release/signing.ts';

const someone = { fingerprints: ['A'.repeat(40), 'B'.repeat(40)], keys: '-----BEGIN…\n', allowUnsigned: true };

describe('whom agents trust', () => {
  let folder: string;
  let file: string;
  let one: SigningKey;
  let two: SigningKey;

  before(async () => {
    folder = await makeFolder();
    file = join(folder, 'keys.asc');
    [one, two] = await Promise.all([makeSigningKey({ type: 'ecc' }), makeSigningKey({ type: 'ecc' })]);
    await writeFile(file, [one, two].map(({ publicKey }) => publicKey).join('\n'));
  });
  after(() => removeFolder(folder));
  const gather = (wanted: Partial<WantedTrust>, before: AgentTrust = noTrust): Promise<AgentTrust> =>
    gatherTrust({ fingerprints: [], keyrings: [], allowUnsigned: false, ...wanted }, before, makeContext());
  const owners = async (keys: string): Promise<string[]> =>
    (await readKeys({ name: 'keys', content: keys })).map(fingerprintOf);

  it('stands in their DaemonSet, and is read there again', async () => {
    const objects = (trust: AgentTrust) =>
      agentObjects({ image: platformImage('d'), executables: {}, trust, admission: undefined, rules: true });
    const [agents] = objects(someone).slice(-1);
    expect(agents && readTrust(agents)).to.deep.equal(someone);
    const [others] = objects(noTrust).slice(-1);
    expect(others && readTrust(others)).to.deep.equal(noTrust);
    const lines = (set = agents): string[] => (set ? formatManifest(set).split('\n') : []);
    const usual = new Set(lines(others));
    await expectGolden(
      'cluster/agent-trust.txt',
      lines()
        .filter((line) => !usual.has(line))
        .join('\n'),
    );
  });

  it('is the requested trust, with only the trusted keys, and the same for the same request', async () => {
    const fingerprint = one.fingerprint.toLowerCase();
    const trust = await gather({ fingerprints: [fingerprint, one.fingerprint, redHatReleaseKey], keyrings: [file] });
    expect(trust)
      .to.include({ allowUnsigned: false })
      .and.to.deep.include({ fingerprints: [one.fingerprint] });
    expect(await owners(trust.keys)).to.deep.equal([one.fingerprint]);
    expect(await gather({ fingerprints: [fingerprint], keyrings: [file] }, trust)).to.deep.equal(trust);
    // Keys need not be given again. They are removed if they are no longer trusted.
    expect(await gather({ fingerprints: [fingerprint] }, trust)).to.deep.equal(trust);
    expect(await gather({}, trust)).to.deep.equal(noTrust);
    const both = await gather({ fingerprints: [two.fingerprint, fingerprint], keyrings: [file] }, trust);
    expect(await owners(both.keys)).to.deep.equal([one.fingerprint, two.fingerprint].sort());
  });

  it('refuses a file without a trusted key', async () => {
    const error = await failureOf(gather({ keyrings: [file] }), 'usage');
    expect(error.message).to.equal(`none of the keys in ${file} is trusted: agents would not use them`);
    expect(error.hint).to.contain(`--trust-fingerprint=${one.fingerprint}`);
  });

  it('is reported if it changes', () => {
    const changes = (before: AgentTrust, after: AgentTrust): string[] =>
      compareTrust(before, after).map(({ level, words }) => `${level}: ${words}`);
    expect(changes(someone, someone)).to.deep.equal([]);
    expect(changes(noTrust, someone)).to.deep.equal([
      `info: agents are to trust the key ${'A'.repeat(40)}`,
      `info: agents are to trust the key ${'B'.repeat(40)}`,
      'warn: agents are to accept unsigned releases',
    ]);
    expect(changes(someone, { ...noTrust, fingerprints: ['B'.repeat(40)] })).to.deep.equal([
      `warn: agents are not to trust the key ${'A'.repeat(40)} any more: to keep that, add ` +
        `--trust-fingerprint=${'A'.repeat(40)}`,
      'warn: agents are not to accept unsigned releases any more: to keep that, add --allow-unsigned',
    ]);
    expect(describeTrust(noTrust)).to.deep.equal([]);
  });
});
