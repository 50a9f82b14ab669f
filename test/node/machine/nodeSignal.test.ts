import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Host } from '../../../lib/node/machine/host.ts';
import { NodeSignal } from '../../../lib/node/machine/nodeSignal.ts';
import { makeContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('NodeSignal, with files in the place of the devices', () => {
  let root: string;
  const context = makeContext();
  const host = (): Host => ({ root, environment: {} });
  beforeEach(async () => {
    root = await makeFolder();
  });
  afterEach(() => removeFolder(root));

  const addLed = async (name: string, triggers = 'none [kbd-numlock] timer'): Promise<string> => {
    const folder = join(root, 'sys/class/leds', name);
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, 'trigger'), triggers);
    await writeFile(join(folder, 'brightness'), '1');
    await writeFile(join(folder, 'max_brightness'), '255\n');
    return folder;
  };
  const read = (folder: string, file: string): Promise<string> => readFile(join(folder, file), 'utf8').catch(() => '-');

  it('blinks the lights that a person can find, and gives them back', async () => {
    const led = await addLed('input4::numlock');
    const signal = new NodeSignal(host(), 'led');
    await signal.give('busy', context);
    expect([await read(led, 'trigger'), await read(led, 'delay_on'), await read(led, 'delay_off')]).to.deep.equal([
      'timer',
      '1000',
      '1000',
    ]);
    await signal.give('removable', context);
    expect([await read(led, 'trigger'), await read(led, 'brightness')]).to.deep.equal(['none', '255']);
    // The kernel still lists all triggers.
    await writeFile(join(led, 'trigger'), '[none] kbd-numlock timer');
    await signal.give('quiet', context);
    expect([await read(led, 'trigger'), await read(led, 'brightness')]).to.deep.equal(['kbd-numlock', '0']);
  });

  it('ends the signal of a killed agent at its start', async () => {
    const led = await addLed('input4::capslock', 'none kbd-capslock [timer]');
    await new NodeSignal(host(), 'led').give('quiet', context);
    expect([await read(led, 'trigger'), await read(led, 'brightness')]).to.deep.equal(['kbd-capslock', '0']);
    const other = await addLed('input5::numlock');
    await new NodeSignal(host(), 'led').give('quiet', context);
    expect([await read(other, 'trigger'), await read(other, 'brightness')]).to.deep.equal([
      'none [kbd-numlock] timer',
      '1',
    ]);
  });

  it('leaves other lights alone, such as those of disks and network cards', async () => {
    const others = await Promise.all(
      ['nvme0::activity', 'eno1::link', 'platform::micmute'].map((name) => addLed(name)),
    );
    const own = await addLed('chassis:blue:identify', '[none]');
    await new NodeSignal(host(), 'led').give('stopped', context);
    for (const led of others) expect(await read(led, 'trigger')).to.equal('none [kbd-numlock] timer');
    // Without a timer, it is on.
    expect([await read(own, 'trigger'), await read(own, 'brightness')]).to.deep.equal(['none', '255']);
  });

  it('sounds a tone for each signal once: start and end, as events of the kernel', async () => {
    const folder = join(root, 'dev/input/by-path');
    await mkdir(folder, { recursive: true });
    const speaker = join(folder, 'platform-pcspkr-event-spkr');
    await writeFile(speaker, '');
    const signal = new NodeSignal(host(), 'beep', 0);
    for (const each of ['busy', 'removable', 'removable', 'stopped', 'quiet'] as const)
      await signal.give(each, context);
    const bytes = await readFile(speaker);
    // A file keeps its position only while it is open, so the second signal is in the place of the first.
    const events = Array.from({ length: bytes.length / 24 }, (_, index) => bytes.subarray(index * 24, index * 24 + 24));
    expect(events.map((event) => event.readInt32LE(20))).to.deep.equal([880, 0, 880, 0, 880, 0]);
    for (const event of events) expect([event.readUInt16LE(16), event.readUInt16LE(18)]).to.deep.equal([0x12, 2]);
  });

  it('does nothing on a node without such devices, and fails nothing', async () => {
    const quiet = makeContext();
    for (const kind of ['led', 'beep'] as const) await new NodeSignal(host(), kind, 0).give('stopped', quiet);
    expect(quiet.lines).to.deep.equal([]);
  });
});
