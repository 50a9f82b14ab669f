import { expect } from 'chai';
import { compareAgents } from '../../../lib/update/install/executable.ts';

describe('agents of another version than the program', () => {
  const compare = (version: string, own: string): string | undefined =>
    compareAgents({ version, formats: [1, 2] }, own);

  it('are updated if they are older, and named if they are newer', () => {
    expect(compare('0.2.0', '0.2.0')).to.equal(undefined);
    expect(compare('0.1.9', '0.2.0')).to.match(/^the agents \(0\.1\.9\) are older .*\(0\.2\.0\): .* install/);
    expect(compare('0.2.0-rc.1', '0.2.0')).to.match(/older/);
    expect(compare('0.10.0', '0.9.0')).to.match(/^the agents \(0\.10\.0\) are newer .* use 0\.10\.0 here too$/);
  });
});
