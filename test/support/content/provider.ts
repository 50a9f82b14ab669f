import { RegistryProvider, type ReleaseProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../../lib/content/registry/mirrors.ts';
import type { Context } from '../../../lib/context.ts';

/** A provider without credentials and mirrors, for registries in this process. */
export function openProvider(context: Context): ReleaseProvider {
  const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
  const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
  return new RegistryProvider({ settings, credentials, mirrors: new MirrorSets() }, context);
}
