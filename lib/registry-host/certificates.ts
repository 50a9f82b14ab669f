/** The certificates of a registry. */
export {
  formatTrust,
  readCertificates,
  trustedAuthorities,
  type CertificateFacts,
  type CertificateStatus,
} from './certificates/certificates.ts';
export {
  findRenewals,
  isHost,
  renewCertificates,
  type Renewal,
  type RenewalNeed,
  type RenewalOptions,
} from './certificates/renewal.ts';
