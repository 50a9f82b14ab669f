import manifest from '../../package.json' with { type: 'json' };
import { Credentials } from '../../lib/registry/auth/credentials.ts';
import { MirrorSets, readMirrorSets } from '../../lib/registry/mirrors.ts';
import type { RegistryAccess } from '../../lib/registry/registries.ts';
import type { Arguments } from './command.ts';
import { parseDuration } from './duration.ts';
import { registryOptions } from './options.ts';

/** The name and version of this program, for registries and for what it writes. */
export const tool = `${manifest.name}/${manifest.version}`;

/** Makes what a command talks to registries and other servers with out of those registry options that it has. */
export async function openAccess(
  args: Partial<Arguments<typeof registryOptions>>,
  environment: NodeJS.ProcessEnv,
): Promise<RegistryAccess> {
  const { pullSecret, idmsFile, certificateAuthority, insecure = false } = args;
  const { maxPerRegistry = registryOptions['max-per-registry'].default } = args;
  const retryTimeout = parseDuration(args.retryTimeout ?? registryOptions['retry-timeout'].default);
  const credentials = new Credentials({ file: pullSecret, environment, uid: process.getuid?.() });
  // What is named on the command line is to be right, whether it is needed or not.
  if (pullSecret !== undefined) await credentials.load();
  const proxies = pickProxies(environment);
  return {
    settings: { insecure, certificateAuthority, environment: proxies, maxPerRegistry, retryTimeout, userAgent: tool },
    credentials,
    mirrors: idmsFile === undefined ? new MirrorSets() : await readMirrorSets(idmsFile),
  };
}

function pickProxies(environment: NodeJS.ProcessEnv): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => /^(?:https?|no|all)_proxy$/i.test(name)));
}
