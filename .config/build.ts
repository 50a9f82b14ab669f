/**
 * Builds the executables into dist/bin, and their modules into dist/lib, or into the folder in the first argument. They
 * run on every machine with Node.js.
 */
import { cp, rm } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { buildExecutables } from './executables.ts';

const folder = process.argv[2] ?? fileURLToPath(new URL('../dist', import.meta.url));
await rm(folder, { recursive: true, force: true });
await cp(await buildExecutables(), folder, { recursive: true });
