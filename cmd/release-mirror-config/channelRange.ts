import { PluginError } from '../../lib/errors.ts';
import type { ChannelRange } from '../../lib/release/graph/updatePath.ts';
import type { Arguments, OptionRecord } from '../cli/command.ts';

/** The options that choose the releases of a channel. */
export const channelOptions = {
  channel: {
    type: 'string',
    describe: 'Channel such as stable-4.20: its releases from --min to --max, or its latest release',
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

/** Reads the range of a channel; undefined without a channel. Throws `usage` for a path without its first release. */
export function readChannelRange({
  channel,
  min,
  max,
  shortestPath,
}: Arguments<typeof channelOptions>): ChannelRange | undefined {
  if (channel === undefined) return undefined;
  if (!shortestPath || min !== undefined) return { channel, min, max, shortestPath };
  throw new PluginError('usage', '--shortest-path needs --min, the release to update from');
}
