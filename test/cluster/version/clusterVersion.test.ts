import { expect } from 'chai';
import { listNeededReleases } from '../../../lib/cluster/version/clusterVersion.ts';

describe('the releases that a cluster may need', () => {
  /** A history, latest first. An exclamation mark means that a version was not completed. */
  const needed = (...history: string[]): string[] | undefined => {
    const entries = history.map((text) => {
      const version = text.replace('!', '');
      return { state: text.endsWith('!') ? 'Partial' : 'Completed', version, image: `image of ${version}` };
    });
    const object = { apiVersion: 'config.openshift.io/v1', kind: 'ClusterVersion', metadata: { name: 'version' } };
    return listNeededReleases({ ...object, status: { history: entries } })?.map((image) => image.slice(9));
  };

  it('are the running one, and the previous one', () => {
    expect(needed('4.18.6', '4.18.5', '4.18.4')).to.deep.equal(['4.18.6', '4.18.5']);
    expect(needed('4.18.6')).to.deep.equal(['4.18.6']);
  });

  it('are those in between too, and not the same one twice', () => {
    expect(needed('4.18.6', '4.18.5!', '4.18.4', '4.18.3')).to.deep.equal(['4.18.6', '4.18.5', '4.18.4']);
    expect(needed('4.18.6', '4.18.6', '4.18.5', '4.18.4')).to.deep.equal(['4.18.6', '4.18.6', '4.18.5']);
  });

  it('are unknown while the release changes, and without a history', () => {
    expect(needed('4.18.6!', '4.18.5')).to.equal(undefined);
    expect(needed()).to.equal(undefined);
  });
});
