import { fieldsAt, type Fields } from '../fields.ts';

const profile = 'include.release.openshift.io/';

/** Returns whether the version operator applies an object to self-managed clusters: it skips other profiles, and removes some objects. */
export function isForClusters({ metadata }: Fields): boolean {
  const marks = fieldsAt(metadata, 'annotations');
  if (marks['release.openshift.io/delete'] === 'true') return false;
  const profiles = Object.keys(marks).filter((mark) => mark.startsWith(profile));
  return profiles.length === 0 || marks[`${profile}self-managed-high-availability`] === 'true';
}
