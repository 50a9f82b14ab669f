#!/usr/bin/env node
import { mirrorRegistry } from './mirror-registry/commands.ts';
import { runMain } from './main.ts';

void runMain(mirrorRegistry);
