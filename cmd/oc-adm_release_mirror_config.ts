#!/usr/bin/env node
import { runMain } from './main.ts';
import { releaseMirrorConfig } from './release-mirror-config/commands.ts';

void runMain(releaseMirrorConfig);
