import { join } from 'node:path';
import { expect } from 'chai';
import { inspectBundle } from '../../../lib/bundle/inspect/inspect.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';
import { checkSigned, type SignedBundle } from '../../../lib/bundle/open/signedBundle.ts';
import { verifyBundle, type VerifyReport } from '../../../lib/bundle/verify.ts';
import { repack, type UnpackedBundle } from '../archive/repack.ts';
import { makeContext } from '../context.ts';
import { failureOf } from '../program/failure.ts';
import { extraImage } from '../release/extraImage.ts';
import { makeBundle, type TestBundle } from './bundle.ts';

/** Returns the text of a Kubernetes object. */
export const kubernetesObject = (kind: string, metadata: object, more: object = {}): string =>
  JSON.stringify({ apiVersion: 'v1', kind, metadata, ...more });

/** The metadata of an object that carries signatures. */
export const managed = { name: 'x', namespace: 'openshift-config-managed' };

/**
 * Makes two bundles for the suite, and returns functions that change one of them and check the copy as each command
 * does.
 */
export function useHostileBundles() {
  let bundle: TestBundle;
  let other: TestBundle;
  const extra = extraImage();
  before(async () => {
    [bundle, other] = await Promise.all([
      makeBundle({ extraImages: [extra] }),
      makeBundle({ version: '4.12.5', seed: 'other' }),
    ]);
  });
  after(() => Promise.all([bundle.remove(), other.remove()]));

  let copies = 0;
  const change = (how: (unpacked: UnpackedBundle) => void): Promise<string> =>
    repack(bundle.path, join(bundle.folder, `hostile-${(copies += 1)}.tar`), how);
  const trusting = (more: Partial<VerifyTrust> = {}): VerifyTrust => ({
    keyrings: [bundle.keyFile],
    fingerprints: [bundle.key.fingerprint],
    allowUnsigned: false,
    fetchFile: () => Promise.reject(new Error('nothing should be fetched')),
    ...more,
  });
  const check = async (path: string, more: Partial<VerifyTrust> = {}): Promise<SignedBundle> => {
    await using opened = await openBundle(path, makeContext());
    return await checkSigned(opened, trusting(more), makeContext());
  };
  const verify = async (path: string, more: Partial<VerifyTrust> = {}): Promise<VerifyReport> => {
    await using opened = await openBundle(path, makeContext());
    return await verifyBundle(opened, { trust: trusting(more) }, makeContext());
  };
  const inspect = async (path: string): Promise<readonly string[]> => {
    await using opened = await openBundle(path, makeContext());
    return (await inspectBundle(opened, makeContext())).notes;
  };
  /** Checks that `verify` lists exactly the content that the other commands refuse. */
  const refuse = async (path: string, ...words: string[]): Promise<void> => {
    const { message } = await failureOf(check(path), 'invalid-bundle');
    const { problems } = await verify(path);
    expect(problems).not.to.deep.equal([]);
    for (const word of words) {
      expect(message).to.contain(word);
      expect(problems.map((problem) => problem.message).join('\n')).to.contain(word);
    }
  };

  return { made: () => ({ bundle, other }), extra, change, check, verify, inspect, refuse };
}
