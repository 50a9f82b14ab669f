#!/usr/bin/env node
import { runProgram } from './main.ts';
import { releaseMirrorConfig } from './release-mirror-config/commands.ts';

void runProgram(releaseMirrorConfig);
