#!/usr/bin/env node
import { mirrorRegistry } from './mirror-registry/commands.ts';
import { runProgram } from './program.ts';

void runProgram(mirrorRegistry);
