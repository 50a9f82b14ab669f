import { PluginError } from '#errors';
import type { ChannelRange } from '#release/graph';
import { isVersion } from '#release/version';
import type { Arguments, OptionRecord } from '../command.ts';

/** The options that choose the releases of channels. */
export const channelOptions = {
  channel: {
    type: 'string',
    repeatable: true,
    describe:
      'Channel such as stable-4.20: its releases from --min to --max, or its latest release; ' +
      'stable-4.20:4.20.1..4.20.5 has a range of its own, of which each end may be left out. Of several channels, ' +
      'the path of updates is included',
    check: (text) => void parseChannel(text),
  },
  min: {
    type: 'string',
    needs: ['channel'],
    describe: 'First release of the channel; its first by default, with --max',
    suggest: 'versions',
  },
  max: {
    type: 'string',
    needs: ['channel'],
    describe: 'Last release of the channel; its latest by default',
    suggest: 'versions',
  },
  'shortest-path': {
    type: 'boolean',
    needs: ['channel'],
    describe: 'Only the releases of the channel on the shortest path of updates from --min to --max',
  },
} as const satisfies OptionRecord;

/** Reads the ranges of channels; none without a channel. Throws `usage` for ranges that contradict each other. */
export function readChannelRanges({
  channel,
  min,
  max,
  shortestPath,
}: Arguments<typeof channelOptions>): readonly ChannelRange[] {
  const ranges = channel.map((text) => ({ ...parseChannel(text), shortestPath }));
  const [only] = ranges;
  if (min !== undefined || max !== undefined) {
    if (ranges.length !== 1 || only?.isWhole || only?.min !== undefined || only?.max !== undefined)
      throw new PluginError('usage', '--min and --max are the range of one channel without its own', {
        hint: 'Give each channel its range: --channel=stable-4.19:4.19.2..4.19.9.',
      });
    Object.assign(only ?? {}, { min, max });
  }
  if (shortestPath && ranges.some((range) => range.min === undefined))
    throw new PluginError('usage', '--shortest-path needs --min, the release to update from');
  return ranges;
}

/** Parses `NAME`, `NAME:MIN..MAX`, `NAME:MIN..`, `NAME:..MAX` and `NAME:..`, the whole channel. Throws `usage`. */
function parseChannel(text: string): Omit<ChannelRange, 'shortestPath'> {
  const [, channel = '', range, min = '', max = ''] = /^([\w.-]+)(:(.*?)\.\.(.*))?$/.exec(text) ?? [];
  if (channel !== '' && [min, max].every((end) => end === '' || isVersion(end)))
    return {
      channel,
      ...(min !== '' && { min }),
      ...(max !== '' && { max }),
      ...(range !== undefined && min === '' && max === '' && { isWhole: true }),
    };
  throw new PluginError('usage', `“${text}” is not a channel`, {
    hint: 'Give its name, such as stable-4.20, or its name and a range: stable-4.20:4.20.1..4.20.5.',
  });
}
