#!/usr/bin/env node
import { mirrorRegistry } from './mirror-registry/commands.ts';
import { runProgram } from './main.ts';

void runProgram(mirrorRegistry);
