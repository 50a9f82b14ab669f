import { expect } from 'chai';
import { checkWindow, findWindow, formatWindowTime } from '../../../lib/update/record/maintenanceWindow.ts';
import { failureOf } from '../../support/program/failure.ts';

const at = (text: string): number => Date.parse(text);
/** Describes the windows at a time: `open to …`, `from … to …`, or `none`. */
function describeAt(time: string, windows: readonly string[], needs = '2h'): string {
  const { open, next } = findWindow(windows, needs, at(time));
  const iso = (instant: number): string => new Date(instant).toISOString().replace(':00.000Z', 'Z');
  if (open) return `open to ${iso(open.ends)}`;
  return next ? `from ${iso(next.begins)} to ${iso(next.ends)}` : 'none';
}

describe('a maintenance window', () => {
  for (const [what, time, windows, expected] of [
    [
      'before it',
      '2026-11-28T12:00Z',
      ['Sat 22:00-04:00 Europe/Berlin'],
      'from 2026-11-28T21:00Z to 2026-11-29T03:00Z',
    ],
    ['within it', '2026-11-29T00:59Z', ['Sat 22:00-04:00 Europe/Berlin'], 'open to 2026-11-29T03:00Z'],
    ['with too little time left', '2026-11-29T01:01Z', ['Sat 22:00-04:00 UTC'], 'open to 2026-11-29T04:00Z'],
    [
      'in its last two hours',
      '2026-11-29T02:01Z',
      ['Sat 22:00-04:00 UTC'],
      'from 2026-12-05T22:00Z to 2026-12-06T04:00Z',
    ],
    [
      'of several days',
      '2026-11-28T12:00Z',
      ['Mon-Wed,Fri 01:00-05:00 UTC'],
      'from 2026-11-30T01:00Z to 2026-11-30T05:00Z',
    ],
    [
      'over the end of the week',
      '2026-11-28T12:00Z',
      ['Fri-Mon 23:00-02:00 UTC'],
      'from 2026-11-28T23:00Z to 2026-11-29T02:00Z',
    ],
    [
      'of each day',
      '2026-11-28T12:00Z',
      ['daily 12:00-14:00 Asia/Tokyo'],
      'from 2026-11-29T03:00Z to 2026-11-29T05:00Z',
    ],
    [
      'that touches another one',
      '2026-11-28T23:30Z',
      ['Sat 22:00-24:00 UTC', 'Sun 00:00-02:00 UTC'],
      'open to 2026-11-29T02:00Z',
    ],
    ['that is too short', '2026-11-28T12:00Z', ['Sat 22:00-23:00 UTC'], 'none'],
    // On 25 October 2026 the clocks of Berlin go from 03:00 back to 02:00, on 28 March 2027 from 02:00 to 03:00.
    [
      'as the clock goes back',
      '2026-10-24T12:00Z',
      ['Sat 22:00-04:00 Europe/Berlin'],
      'from 2026-10-24T20:00Z to 2026-10-25T03:00Z',
    ],
    [
      'that ends in the hour that comes twice',
      '2026-10-24T12:00Z',
      ['Sat 22:00-02:30 Europe/Berlin'],
      'from 2026-10-24T20:00Z to 2026-10-25T00:30Z',
    ],
    [
      'as the clock goes forward',
      '2027-03-27T12:00Z',
      ['Sat 22:00-04:00 Europe/Berlin'],
      'from 2027-03-27T21:00Z to 2027-03-28T02:00Z',
    ],
    [
      'that begins in the hour that is skipped',
      '2027-03-27T12:00Z',
      ['Sun 02:30-06:00 Europe/Berlin'],
      'from 2027-03-28T01:30Z to 2027-03-28T04:00Z',
    ],
    [
      'in a zone with an odd offset',
      '2026-11-28T12:00Z',
      ['Sun 01:00-05:00 Asia/Kathmandu'],
      'from 2026-11-28T19:15Z to 2026-11-28T23:15Z',
    ],
  ] as const)
    it(`is found: ${what}`, () => {
      expect(describeAt(time, windows)).to.equal(expected);
    });

  it('is shown by the clock of its zone', () => {
    const { next } = findWindow(['Sat 22:00-04:00 Europe/Berlin'], '2h', at('2026-11-28T12:00Z'));
    expect(next && formatWindowTime(next.begins, next)).to.equal('Sat 28 Nov 2026, 22:00 Europe/Berlin');
  });

  it('is refused if it is malformed, and if its zone is unknown', async () => {
    for (const text of [
      '',
      'Sat',
      'Sat 22:00-04:00',
      'Sat 25:00-04:00 UTC',
      'Sat 22:60-04:00 UTC',
      'Caturday 22:00-04:00 UTC',
      'Sat 22:00-04:00 Europe/Berln',
      'Sat 22:00-04:00 +02:00',
      'Sat-Sun-Mon 22:00-04:00 UTC',
      'daily,Sat 1:00-2:00 UTC',
    ])
      expect(
        (
          await failureOf(
            Promise.resolve().then(() => checkWindow(text)),
            'usage',
          )
        ).hint,
        text,
      ).to.match(/Europe\/Berlin/);
    for (const text of [
      'sat,SUN 1:00-5:00 UTC',
      'Daily 1:00-5:00 UTC',
      'Fri-Mon 00:00-24:00 America/Argentina/Buenos_Aires',
    ])
      checkWindow(text);
  });
});
