import { openRegistryOrigin, type Origin } from '../../lib/bundle/origin.ts';
import type { Context } from '../../lib/context.ts';
import { loadCredentials } from '../../lib/store/credentials.ts';
import { MirrorSets } from '../../lib/store/mirrors.ts';

/** An origin without credentials and mirrors, for registries in this process. */
export async function openOrigin(context: Context): Promise<Origin> {
  const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
  const credentials = await loadCredentials({ environment: {}, home: '/nonexistent' });
  return openRegistryOrigin({ settings, credentials, mirrors: new MirrorSets() }, context);
}
