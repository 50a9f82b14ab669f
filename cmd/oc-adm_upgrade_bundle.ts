#!/usr/bin/env node
import { runProgram } from './program.ts';
import { upgradeBundle } from './upgrade-bundle/commands.ts';

void runProgram(upgradeBundle);
