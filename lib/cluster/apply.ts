/** Writing objects to a cluster: apply, server-side apply, and the rights for it. */
export { isAllowed, listDenied, type AccessRequest, type Verb } from './apply/accessReview.ts';
export { applyManifests, type ApplyOptions, type ApplyOutcome } from './apply/apply.ts';
export { ApiError } from './apply/apiErrors.ts';
export { applyObjects, deleteObjects, type AppliedObject } from './apply/serverSideApply.ts';
