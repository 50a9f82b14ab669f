import { expect } from 'chai';
import { markup } from '../../../../cmd/upgrade-bundle/report/page.ts';

describe('markup', () => {
  it('escapes text, in content and in attributes', () => {
    const hostile = `"><script>alert('&')</script>`;
    expect(markup`<a title="${hostile}">${hostile}</a>`.text).not.to.match(/<script|"">|alert\('/);
  });

  it('puts markup and lists of it in as they are', () => {
    const rows = ['a', 'b'].map((each) => markup`<li>${each}</li>`);
    expect(markup`<ul>${rows}</ul>`.text).to.equal('<ul><li>a</li><li>b</li></ul>');
  });

  it('leaves out missing values', () => {
    expect(markup`[${undefined}${false}${0}]`.text).to.equal('[0]');
  });

  it('shows invisible characters as replaced', () => {
    expect(markup`${'a\u202eb\u0007'}`.text).to.equal('a\ufffdb\ufffd');
  });
});
