import { expect } from 'chai';
import {
  bundleFolderOption,
  checkPlace,
  clusterAccessOptions,
  clusterOptions,
  dryRunOf,
  dryRunOption,
  formatOption,
  outputOption,
  registryOptions,
} from '../../../cmd/cli/options.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { readLine } from '../../support/program/readLine.ts';

describe('the shared options', () => {
  it('tell the format from the place, if -o is the format and --output the place', async () => {
    for (const [program, ...words] of [
      ['upgrade-bundle', 'create', '4.20.3'],
      ['mirror-registry', 'bundle', 'create', '--version=2.0.11'],
      ['mirror-registry', 'backup'],
    ] as const) {
      expect((await readLine(program, ...words, '-o', 'yaml'))['format']).to.equal('yaml');
      const name = `oc-adm_${program.replace('-', '_')}`;
      const format = await executeProgram(name, [...words, '-o', '/media/usb']);
      expect(format.stderr)
        .to.contain('“/media/usb” is not an output format')
        .and.to.contain('hint: The place is --output=/media/usb.');
      const place = await executeProgram(name, [...words, '--output=json']);
      expect(place.stderr).to.contain('“json” is a format').and.to.contain('hint: The format is -o json.');
      expect([format.code, place.code]).to.deep.equal([2, 2]);
    }
    expect(await readLine('upgrade-bundle', 'create', '4.20.3')).to.include({ output: '.' });
  });

  it('take no path for a format, and no format for a place', () => {
    const { check } = formatOption().format;
    for (const word of ['json', 'yaml', 'xml']) check(word);
    for (const word of ['', '.', '..', 'a/b', '\\\\host', './json'])
      expect(() => check(word), word).to.throw(`“${word}” is not an output format`);
    for (const word of ['./json', 'jsonl', '/media/usb']) checkPlace(word);
    for (const word of ['json', 'yaml']) expect(() => checkPlace(word)).to.throw(`“${word}” is a format`);
    expect(bundleFolderOption().output).to.include({ default: '.', check: checkPlace });
  });

  it('have json and yaml among the formats of each output, with the others of a command', () => {
    expect(outputOption('junit', 'jsonpath=').output.choices).to.deep.equal(['json', 'yaml', 'junit', 'jsonpath=']);
    expect(outputOption().output).to.include({ alias: 'o', hiddenAlias: 'format' });
  });

  it('have the values of kubectl for a dry run, also of a command that asks no server', async () => {
    const { describe, ...own } = dryRunOf('Only print')['dry-run'];
    expect(describe).to.equal('Only print');
    expect(dryRunOption['dry-run']).to.deep.include(own);
    for (const [words, dryRun] of [
      [[], 'none'],
      [['--dry-run'], 'client'],
      [['--dry-run=server'], 'server'],
    ] as const)
      expect(await readLine('upgrade-bundle', 'apply', ...words)).to.include({ dryRun });
  });

  it('have the certificate authority of kubectl only where no registry has one', async () => {
    const words = ['--certificate-authority=package.json'];
    const given = { clusterCertificateAuthority: 'package.json' };
    expect(await readLine('upgrade-bundle', 'status', ...words)).to.include(given);
    const mirrored = await readLine('release-mirror-config', '4.20.3', '--to-dir=m', ...words);
    expect(mirrored).to.include({ certificateAuthority: 'package.json', clusterCertificateAuthority: undefined });
    expect(Object.keys(clusterAccessOptions)).to.deep.equal(Object.keys(clusterOptions));
  });

  it('have a time for retries, and no secret as the name of a file', () => {
    const { 'retry-timeout': retry, 'pull-secret': secret } = registryOptions;
    for (const text of ['90s', '2h', '0']) retry.check(text);
    expect(() => {
      retry.check('2 days');
    }).to.throw('is not a time of at most a day');
    expect(() => {
      secret.check('{"auths":{}}');
    }).to.throw('the name of a file is needed');
  });
});
