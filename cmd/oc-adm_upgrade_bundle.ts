#!/usr/bin/env node
import { runMain } from './main.ts';
import { upgradeBundle } from './upgrade-bundle/commands.ts';

void runMain(upgradeBundle);
