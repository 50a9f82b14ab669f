import manifest from '../package.json' with { type: 'json' };
import { loadCredentials } from '../lib/store/credentials.ts';
import { MirrorSets, readMirrorSets } from '../lib/store/mirrors.ts';
import type { RegistryAccess } from '../lib/store/registries.ts';
import type { Arguments } from './command.ts';
import type { registryOptions } from './options.ts';

/** The name and version of this program, for registries and for what it writes. */
export const tool = `${manifest.name}/${manifest.version}`;

/** Makes what a command talks to registries with out of its registry options. */
export async function openAccess(
  args: Arguments<typeof registryOptions>,
  environment: NodeJS.ProcessEnv,
): Promise<RegistryAccess> {
  return {
    settings: {
      insecure: args.insecure,
      certificateAuthority: args.certificateAuthority,
      environment: pickProxies(environment),
      maxPerRegistry: args.maxPerRegistry,
      userAgent: tool,
    },
    credentials: await loadCredentials({ file: args.pullSecret, environment, uid: process.getuid?.() }),
    mirrors: args.idmsFile === undefined ? new MirrorSets() : await readMirrorSets(args.idmsFile),
  };
}

function pickProxies(environment: NodeJS.ProcessEnv): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => /^(?:https?|no|all)_proxy$/i.test(name)));
}
