import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { isClockSynchronized } from '../../../lib/node/machine/hostCommands.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('isClockSynchronized', () => {
  let folder: string;
  before(async () => {
    folder = await makeFolder();
  });
  after(() => removeFolder(folder));
  const host = () => ({ root: '/', environment: { PATH: folder } });
  const answerWith = async (script: string): Promise<void> => {
    await writeFile(join(folder, 'timedatectl'), `#!/bin/sh\n${script}\n`);
    await chmod(join(folder, 'timedatectl'), 0o755);
  };

  it('asks timedatectl, and knows nothing if that fails', async () => {
    for (const [script, answer] of [
      ['test "$*" = "show --property=NTPSynchronized --value" && echo yes', true],
      ['echo no', false],
      ['echo "Failed to connect to bus" >&2; exit 1', undefined],
      ['echo perhaps', undefined],
    ] as const) {
      await answerWith(script);
      expect(await isClockSynchronized(host(), makeContext()), script).to.equal(answer);
    }
  });

  it('ends with an interruption', async () => {
    const context = makeContext();
    context.interrupt();
    await failureOf(isClockSynchronized(host(), context), 'interrupted');
  });
});
