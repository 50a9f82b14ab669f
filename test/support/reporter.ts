import { hash } from 'node:crypto';
import Mocha, { type MochaOptions, type Runner, type Suite, type Test } from 'mocha';

const { Base } = Mocha.reporters;
const { EVENT_RUN_END, EVENT_SUITE_END, EVENT_TEST_FAIL, EVENT_TEST_PASS, EVENT_TEST_PENDING } = Mocha.Runner.constants;

/**
 * Prints a line for each suite, and each failure as it happens. Unless .ci/worker.mjs says that this is a part of a
 * run, it prints the skipped tests and, as the last line, `N passed, N failed, N skipped`.
 */
export default class Reporter extends Base {
  readonly #skipped: string[] = [];
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
    runner.on(EVENT_SUITE_END, (suite: Suite) => {
      const passed = this.#passed.get(suite);
      if (passed !== undefined) {
        Base.consoleLog('  %s  %s', String(passed).padStart(4), suite.fullTitle());
      }
    });
    runner.once(EVENT_RUN_END, () => {
      if (this.failures.length > 0) Base.list(this.failures);
      if (!(options.reporterOptions as { isPart?: boolean } | undefined)?.isPart) this.#printTotal();
    });
  }

  #printTotal(): void {
    const skipped = this.#skipped.length;
    if (skipped > 0) Base.consoleLog(Base.color('pending', '\n  SKIPPED (%s):'), String(skipped));
    for (const title of this.#skipped) Base.consoleLog(Base.color('pending', '    - %s'), title);
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
