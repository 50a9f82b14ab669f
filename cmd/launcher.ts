#!/usr/bin/env node
import { existsSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

// The launcher of a program that `npm run build` built, and that needs the modules of the folder `lib` beside `bin`.

/** The oldest Node.js that runs the program, and the path of its first module from here. */
declare const __LEAST_NODE__: number;
declare const __PROGRAM__: string;

const program = fileURLToPath(new URL(__PROGRAM__, import.meta.url));
const failure = findFailure();
if (failure === undefined) createRequire(import.meta.url)(program);
else {
  writeSync(2, `error: ${failure}\n`);
  process.exitCode = 1;
}

function findFailure(): string | undefined {
  if (Number.parseInt(process.versions.node, 10) < __LEAST_NODE__) {
    const message = `this is Node.js ${process.versions.node}, and version ${__LEAST_NODE__} or newer is needed`;
    return `${message}\nhint: Put a newer 'node' first on the path.`;
  }
  if (existsSync(program)) return undefined;
  return (
    `${program} is missing\nhint: The folders bin and lib of a build belong together. Link to the file in bin ` +
    'instead of copying it.'
  );
}
