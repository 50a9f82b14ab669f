#!/usr/bin/env node
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { defineCommand, type Program } from '../../../cmd/cli/command.ts';
import { outputOption, registryOptions } from '../../../cmd/cli/options.ts';
import { checkImage } from '../../../cmd/cli/values.ts';
import { execute } from '../../../cmd/execute.ts';
import { runMain } from '../../../cmd/main.ts';
import { PluginError } from '../../../lib/errors.ts';

/** A program for tests of the common behavior of all programs. */
export const sample: Program = {
  name: 'oc sample',
  describe: 'Do a little.',
  commands: [
    {
      usage: 'show <thing>',
      describe: 'Show what was understood',
      load: () =>
        Promise.resolve({
          command: defineCommand({
            positionals: { thing: { type: 'string', describe: 'What to show', required: true } },
            options: {
              ...registryOptions,
              ...outputOption(),
              version: { type: 'string', required: true, describe: 'Version of the thing' },
              'extra-image': { type: 'string', repeatable: true, check: checkImage, describe: 'One more image' },
            },
            examples: [['box --version=4.12.4', 'Show a box']],
            run({ thing, version, extraImage, maxPerRegistry, insecure, output, pullSecret }, { terminal }) {
              terminal.print(
                JSON.stringify({ thing, version, extraImage, maxPerRegistry, insecure, output, pullSecret }),
              );
              return Promise.resolve();
            },
          }),
        }),
    },
    {
      usage: 'fail <how>',
      describe: 'Fail in one of several ways',
      load: () =>
        Promise.resolve({
          command: defineCommand({
            positionals: {
              how: {
                type: 'string',
                describe: 'In which way',
                choices: ['plainly', 'badly', 'twice', 'alone', 'when-stopped'],
              },
            },
            options: {},
            examples: [['plainly', 'Fail with an error that says what to do']],
            async run({ how }, { terminal, context }) {
              switch (how) {
                case 'plainly':
                  throw new PluginError('unreachable', 'The registry r.test does not answer.', {
                    hint: 'Check the network.',
                    cause: new Error('ECONNREFUSED 192.0.2.1'),
                  });
                case 'twice': {
                  await using _ = {
                    [Symbol.asyncDispose]: () => Promise.reject(new TypeError('y cannot be closed')),
                  };
                  throw new PluginError('unreachable', 'The registry r.test does not answer.');
                }
                case 'alone':
                  setTimeout(() => {
                    throw new TypeError('nobody waits for this');
                  }, 1);
                  await sleep(60_000);
                  break;
                case 'when-stopped':
                  terminal.print('waiting');
                  await sleep(60_000, undefined, { signal: context.signal });
                  break;
                default:
                  throw new TypeError('x is not a function');
              }
            },
          }),
        }),
    },
    {
      usage: 'mutter',
      describe: 'Have packages and Node.js print warnings',
      load: () =>
        Promise.resolve({
          command: defineCommand({
            options: {},
            examples: [],
            async run(_, { terminal, context }) {
              process.emitWarning('too many listeners', 'MaxListenersExceededWarning');
              for (const method of ['log', 'warn', 'error'] as const) console[method](`%s of a package`, method);
              await sleep(10);
              context.log('warn', 'ours');
              terminal.print('done');
            },
          }),
        }),
    },
    {
      usage: 'hang',
      describe: 'Wait for a minute whatever happens',
      load: () =>
        Promise.resolve({
          command: defineCommand({
            options: {},
            examples: [],
            async run(_, { terminal }) {
              terminal.print('waiting');
              await sleep(60_000);
            },
          }),
        }),
    },
    {
      usage: 'flood',
      describe: 'Print a great many lines',
      load: () =>
        Promise.resolve({
          command: defineCommand({
            options: {},
            examples: [],
            run(_, { terminal }) {
              for (let line = 0; line < 100_000; line += 1) {
                terminal.print(`line ${line}`);
              }
              return Promise.resolve();
            },
          }),
        }),
    },
  ],
};

/** Runs the program in this process. */
export async function executeSample(
  args: readonly string[],
  signals: { readonly signal?: AbortSignal; readonly broken?: AbortSignal } = {},
): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const outputs = Promise.all([text(stdout), text(stderr)]);
  const { signal } = new AbortController();
  const code = await execute(sample, args, {
    stdout,
    stderr,
    environment: {},
    executable: 'sample',
    signal,
    ...signals,
  });
  stdout.end();
  stderr.end();
  const [printed, errors] = await outputs;
  return { code, stdout: printed, stderr: errors };
}

if (import.meta.main) {
  await runMain(sample);
}
