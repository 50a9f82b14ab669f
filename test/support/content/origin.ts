import { RegistryOrigin, type BundleOrigin } from '../../../lib/bundle/create/origin.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../../lib/content/registry/mirrors.ts';
import type { Context } from '../../../lib/context.ts';

/** An origin without credentials and mirrors, for registries in this process. */
export function openOrigin(context: Context): BundleOrigin {
  const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
  const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
  return new RegistryOrigin({ settings, credentials, mirrors: new MirrorSets() }, context);
}
