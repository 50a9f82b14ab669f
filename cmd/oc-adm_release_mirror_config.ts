#!/usr/bin/env node
import { runProgram } from './program.ts';
import { releaseMirrorConfig } from './release-mirror-config/commands.ts';

void runProgram(releaseMirrorConfig);
