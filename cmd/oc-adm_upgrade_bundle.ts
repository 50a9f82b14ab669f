#!/usr/bin/env node
import { runProgram } from './main.ts';
import { upgradeBundle } from './upgrade-bundle/commands.ts';

void runProgram(upgradeBundle);
