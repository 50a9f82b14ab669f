import { RegistryProvider, type ReleaseProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../../lib/content/registry/mirrors.ts';
import type { RegistryAccess } from '../../../lib/content/registry/registries.ts';
import type { Context } from '../../../lib/context.ts';

/** Access to registries in this process, without credentials and mirrors. */
export const localAccess: RegistryAccess = {
  settings: { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' },
  credentials: new Credentials({ environment: {}, home: '/nonexistent' }),
  mirrors: new MirrorSets(),
};

/** A provider without credentials and mirrors, for registries in this process. */
export function openProvider(context: Context): ReleaseProvider {
  return new RegistryProvider(localAccess, context);
}
