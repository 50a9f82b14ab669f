#!/usr/bin/env node
import { runMain } from './main.ts';
import { mirrorRegistry } from './mirror-registry/commands.ts';

void runMain(mirrorRegistry);
