/** Verification of every byte, its receipt, and the updates that a bundle allows. */
export { openReceipt, readSigningKey, signReceipt, type ReceiptStatement } from './verify/receipt.ts';
export { Walk, scanContent } from './verify/scan.ts';
export { planUpdate, type UpdatePlan } from './verify/updatePlan.ts';
export { verifyBundle, type ExpectedDigest, type VerifyReport } from './verify/verify.ts';
