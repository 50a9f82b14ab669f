#!/usr/bin/env node
import { basename } from 'node:path';
import { chooseProgram } from './cli/programChoice.ts';
import { runMain } from './main.ts';
import { mirrorRegistry } from './mirror-registry/commands.ts';
import { releaseMirrorConfig } from './release-mirror-config/commands.ts';
import { upgradeBundle } from './upgrade-bundle/commands.ts';

const { program, argv } = chooseProgram(
  [upgradeBundle, releaseMirrorConfig, mirrorRegistry],
  basename(process.argv0),
  process.argv.slice(2),
);
void runMain(program, argv);
