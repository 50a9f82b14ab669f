import { expect } from 'chai';
import type { OptionRecord } from '../../../cmd/cli/command.ts';
import { normalizeWords } from '../../../cmd/cli/program.ts';
import { mirrorRegistry } from '../../../cmd/mirror-registry/commands.ts';
import { releaseMirrorConfig } from '../../../cmd/release-mirror-config/commands.ts';
import { upgradeBundle } from '../../../cmd/upgrade-bundle/commands.ts';

const destructive = ['remove-data', 'drop-backups', 'remove-pins', 'keep'];

describe('options that prevent changes', () => {
  for (const program of [upgradeBundle, releaseMirrorConfig, mirrorRegistry]) {
    it(`have one form in ${program.name}`, async () => {
      for (const entry of program.commands) {
        const options: OptionRecord = (await entry.load()).command.options;
        const dryRun = options['dry-run'];
        if (dryRun) expect(dryRun, entry.usage).to.include({ type: 'string', default: 'none' });
        if (dryRun) expect(dryRun.choices, entry.usage).to.deep.equal(['none', 'client', 'server']);
        const asks = destructive.some((name) => name in options);
        if (asks) expect(options, entry.usage).to.include.keys('yes', 'dry-run');
      }
      expect(normalizeWords(['upgrade', '--dry-run'])).to.deep.equal(['upgrade', '--dry-run=client']);
    });
  }
});
