import { hash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import Mocha, { type MochaOptions, type Runner, type Suite, type Test } from 'mocha';

const { Base } = Mocha.reporters;
const { EVENT_RUN_END, EVENT_SUITE_END, EVENT_TEST_FAIL, EVENT_TEST_PASS, EVENT_TEST_PENDING } = Mocha.Runner.constants;

/**
 * Prints a line for each suite, each failure as it happens, the skipped tests, and `N passed, N failed, N skipped` as
 * the last line.
 */
export default class Reporter extends Base {
  readonly #skipped: string[] = [];
  readonly #times = new Map<string, number>();
  readonly #passed = new Map<Suite | undefined, number>();

  constructor(runner: Runner, options: MochaOptions) {
    super(runner, options);
    const seed = process.env['TEST_SEED'];
    if (seed !== undefined) shuffle(runner.suite, seed);
    runner.on(EVENT_TEST_PASS, (test: Test) => {
      this.#passed.set(test.parent, (this.#passed.get(test.parent) ?? 0) + 1);
    });
    runner.on(EVENT_TEST_FAIL, (test: Test) => {
      Base.consoleLog(Base.color('fail', '  FAILED  %s'), test.fullTitle());
    });
    runner.on(EVENT_TEST_PENDING, (test: Test) => {
      this.#skipped.push(test.fullTitle());
    });
    let begun = Date.now();
    runner.on(EVENT_SUITE_END, (suite: Suite) => {
      if (suite.parent?.root === true && suite.file !== undefined) {
        this.#times.set(suite.file, (this.#times.get(suite.file) ?? 0) + Date.now() - begun);
        begun = Date.now();
      }
      const passed = this.#passed.get(suite);
      if (passed !== undefined) {
        Base.consoleLog('  %s  %s', String(passed).padStart(4), suite.fullTitle());
      }
    });
    runner.once(EVENT_RUN_END, () => {
      this.#finish();
    });
  }

  /**
   * Returns the report for .ci/test.mjs: the counts, the titles of skipped tests, and the duration of each file in
   * milliseconds.
   */
  #report(): object {
    const times = Object.fromEntries([...this.#times].map(([file, time]) => [relative(process.cwd(), file), time]));
    return { passed: this.stats.passes, failed: this.failures.length, skipped: this.#skipped, times };
  }

  #finish(): void {
    const skipped = this.#skipped.length;
    if (this.failures.length > 0) {
      Base.list(this.failures);
    }
    const report = process.env['TEST_REPORT'];
    if (skipped > 0 && report === undefined) {
      Base.consoleLog(Base.color('pending', '\n  SKIPPED (%s):'), String(skipped));
      for (const title of this.#skipped) {
        Base.consoleLog(Base.color('pending', '    - %s'), title);
      }
    }
    if (report !== undefined) writeFileSync(report, JSON.stringify(this.#report()));
    const passed = String(this.stats.passes);
    Base.consoleLog('\n%s passed, %s failed, %s skipped', passed, String(this.failures.length), String(skipped));
  }
}

/** Puts the suites and the tests of a suite into the order of a seed. */
function shuffle(suite: Suite, seed: string): void {
  const rank = (each: Suite | Test): string => hash('sha256', seed + each.fullTitle());
  const compare = (a: Suite | Test, b: Suite | Test): number => (rank(a) < rank(b) ? -1 : 1);
  suite.tests.sort(compare);
  suite.suites.sort(compare);
  for (const each of suite.suites) shuffle(each, seed);
}
