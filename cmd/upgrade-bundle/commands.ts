import type { Program } from '../command.ts';

/** What `oc adm-upgrade-bundle` can do. */
export const upgradeBundle: Program = {
  name: 'oc adm-upgrade-bundle',
  describe: 'Put everything an OpenShift update needs into one file, and look into such a file.',
  commands: [],
};
