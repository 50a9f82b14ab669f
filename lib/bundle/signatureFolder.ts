import type { ConfigManifest } from '../config/manifest.ts';
import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { firstMessage } from '../failures.ts';
import { parseConfig, type ConfigText } from './bundledConfig.ts';
import { judgeConfig } from './configCheck.ts';
import { verifyUntrusted, type VerifyTrust } from './signatureCheck.ts';

/**
 * Checks a folder of configuration without its release. Accepts only signatures by trusted keys. Returns the
 * signatures, rebuilt. Throws `untrusted` with the first other content.
 */
export async function checkSignatureFolder(
  texts: readonly ConfigText[],
  folder: string,
  trust: VerifyTrust,
  context: Context,
): Promise<readonly ConfigManifest[]> {
  const config = await parseConfig(texts, context);
  const subject = { digests: new Map<never, never>(), repositories: new Set<never>() };
  const good = await verifyUntrusted(config.signatures, subject.digests, [], trust, context);
  const bundle = { form: 'directory', described: false, metadata: { signatures: {}, extraImages: [] } } as const;
  const { signatures, problems } = judgeConfig(bundle, config, subject, { good, lenient: false });
  const message = firstMessage(problems);
  if (message === undefined) return signatures;
  throw new PluginError('untrusted', `${folder} is neither a bundle nor a mirror directory: ${message}`, {
    hint: 'Give the bundle or mirror directory, whose release signature covers its configuration, or trust the key.',
    settings: ['signatureKeyring', 'trustFingerprint', 'allowUnsigned'],
  });
}
