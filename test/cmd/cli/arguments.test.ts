import { expect } from 'chai';
import { camelCase } from '../../../cmd/cli/arguments.ts';
import { namesOf, type Option } from '../../../cmd/cli/command.ts';
import { commonOptions, normalizeWord } from '../../../cmd/cli/commonOptions.ts';
import { parse, normalizeWords } from '../../../cmd/cli/program.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';
import { readLine } from '../../support/program/readLine.ts';
import { programs } from '../../support/project/docs.ts';

describe('the arguments of commands', () => {
  it('take a time as kubectl does, and a number alone in seconds', async () => {
    for (const [text, seconds] of [
      ['90', 90],
      ['90s', 90],
      ['10m', 600],
      ['2h', 7200],
      ['1m30s', 90],
      ['1.5m', 90],
    ] as const) {
      expect(await readLine('upgrade-bundle', 'abort', `--timeout=${text}`)).to.include({ timeout: seconds });
    }
    expect(await readLine('upgrade-bundle', 'abort')).to.include({ timeout: 300 });
    for (const text of ['1x', '25h', '-5', '1.5s']) {
      const { code, stderr } = await executeProgram('oc-adm_upgrade_bundle', ['abort', `--timeout=${text}`]);
      expect([code, stderr.split('\n')[0]]).to.deep.equal([
        2,
        'error (usage): --timeout must be a time from 1s to 86400s, such as 90s, 10m or 1m30s',
      ]);
    }
  });

  /** Returns the ways to spell an option without its value. The last one of a line may also be one without “=”. */
  const emptySpellings = (name: string, { type }: Option): { joined: string[]; separate: string[][] } => {
    const dashed = name.length === 1 ? `-${name}` : `--${name}`;
    const hasBare = type === 'boolean' || name === 'version' || normalizeWord(dashed) !== dashed;
    const group = name.length === 1 ? [[`-q${name}`]] : [];
    return {
      joined: [...new Set([`${dashed}=`, `--${name}=`, `--${camelCase(name)}=`])],
      separate: hasBare ? [] : [[dashed, ''], [dashed], ...group],
    };
  };

  for (const program of programs)
    it(`of ${program.name} are refused without the value of an option, in each place and spelling`, async () => {
      const accepted: string[] = [];
      // Commands share option records.
      const tried = new Set<object>();
      for (const entry of program.commands) {
        const own = entry.usage.split(' ', 1).filter((word) => word !== '$0');
        const { command } = await entry.load();
        const argument = Object.keys(command.positionals ?? {}).length > 0 ? ['x'] : [];
        // Who asks for help gets it.
        const { help: _, ...common } = commonOptions;
        for (const [name, option] of Object.entries<Option>({ ...common, ...command.options })) {
          if (tried.has(option)) continue;
          tried.add(option);
          for (const each of [...namesOf([name, option]), ...[option.hiddenAlias ?? []].flat()]) {
            const { joined, separate } = emptySpellings(each, option);
            const lines = [
              ...joined.map((word) => [word, ...argument]),
              ...[...joined.map((word) => [word]), ...separate].flatMap((spelling) => [
                [...argument, ...spelling],
                [...argument, ...spelling, '--verbose'],
                [...spelling, '--', ...argument],
              ]),
            ].map((words) => [...own, ...words]);
            for (const line of lines) {
              const failure = await failureOf(parse(program, normalizeWords(line), () => Promise.resolve())).catch(
                () => undefined,
              );
              if (failure?.code !== 'usage') accepted.push(line.join(' '));
            }
          }
        }
      }
      expect(accepted.join('\n')).to.equal('');
      expect(tried.size).to.be.greaterThan(30);
    });

  it('name the short option that has no value after its “=”', async () => {
    const line = readLine('upgrade-bundle', 'status', '-o=');
    expect((await failureOf(line, 'usage')).message).to.equal('--output needs a value');
  });

  it('take no blank and no hexadecimal number for a number', async () => {
    for (const text of [' ', '0x6', '6.0', '1e1']) {
      const line = readLine('upgrade-bundle', 'create', '4.20.3', `--max-per-registry=${text}`);
      expect((await failureOf(line, 'usage')).message).to.match(/^--max-per-registry must be a whole number/);
    }
    const line = await readLine('upgrade-bundle', 'create', '4.20.3', '--max-per-registry', '6');
    expect(line).to.include({ maxPerRegistry: 6 });
  });

  it('may have the names of members that each object of the language has', async () => {
    expect(await readLine('upgrade-bundle', 'inspect', 'constructor')).to.include({ bundle: 'constructor' });
    const action = await failureOf(readLine('mirror-registry', 'certs', 'toString'), 'usage');
    expect(action.message).to.match(/^<action> cannot be “toString”/);
    for (const name of ['--constructor', '--to-string', '--__proto__']) {
      const option = await failureOf(readLine('upgrade-bundle', 'status', name), 'usage');
      expect(option.message).to.equal(`unknown option ${name}`);
    }
  });

  it('are refused if an option is given that acts only with another one', async () => {
    const samples: Record<string, string> = {
      'download-dir': 'd',
      operator: 'a@b',
      'mirror-quota': '1G',
      'window-needs': '2h',
    };
    const found: string[] = [];
    for (const program of programs)
      for (const entry of program.commands) {
        const { options } = (await entry.load()).command;
        for (const [name, { needs, type, choices, range }] of Object.entries<Option>(options)) {
          if (!needs) continue;
          for (const each of needs) expect(Object.keys(options), `${entry.usage} --${name}`).to.include(each);
          const own = entry.usage.split(' ', 1).filter((word) => word !== '$0');
          const value = type === 'boolean' ? '' : `=${choices?.[0] ?? range?.[0] ?? samples[name] ?? '4.20.3'}`;
          const line = normalizeWords([...own, `--${name}${value}`]);
          const { message } = await failureOf(
            parse(program, line, () => Promise.resolve()),
            'usage',
          );
          if (!message.endsWith(' is missing'))
            expect(message).to.equal(`--${name} needs ${needs.map((each) => `--${each}`).join(' or ')}`);
          found.push(name);
        }
      }
    expect(found).to.include.members(['include-held', 'overwrite', 'mirror-port', 'shortest-path', 'text']);
  });

  it('name each file that does not exist, as not-found, before anything else is done', async () => {
    const found: string[] = [];
    for (const program of programs)
      for (const entry of program.commands) {
        const { options } = (await entry.load()).command;
        const own = entry.usage.split(' ', 1).filter((word) => word !== '$0');
        for (const [name, { suggest, alsoTakes }] of Object.entries<Option>(options)) {
          if (suggest !== 'files') continue;
          for (const file of ['/absent/file', ...(alsoTakes ? [] : ['http://a.test/file', '-'])]) {
            const line = normalizeWords([...own, `--${name}=${file}`]);
            const { code, message } = await failureOf(parse(program, line, () => Promise.resolve()));
            if (message.endsWith(' is missing')) continue;
            expect([code, message]).to.deep.equal(['not-found', `--${name}: there is no file ${file}`]);
            found.push(name);
          }
        }
      }
    expect(found).to.include.members([
      'pull-secret',
      'idms-file',
      'kubeconfig',
      'client-key',
      'baseline',
      'images-from',
    ]);
  });

  it('of apply are refused if the API server would refuse them as fields of an UpgradeBundle', async () => {
    const wrong = { 'accept-risk': 'a\tb', acknowledge: 'x', ignore: 'a b', 'backup-to': 'nfs://x', device: 'sda' };
    const { command } = await import('../../../cmd/upgrade-bundle/apply.ts');
    for (const [name, option] of Object.entries<Option>(command.options)) {
      const isField = option.type === 'string' && option.group === undefined && !option.choices;
      if (!isField || ['filename', 'digest', 'allow-extra-images'].includes(name)) continue;
      expect(Object.keys(wrong)).to.include(name);
      for (const value of [wrong[name as keyof typeof wrong], '/'.padEnd(5000, 'x')])
        await failureOf(
          readLine('upgrade-bundle', 'apply', '--digest=sha256:' + 'a'.repeat(64), `--${name}`, value),
          'usage',
        );
    }
  });

  it('may have the kind before a name, as oc prints it', async () => {
    for (const name of ['node/worker-0', 'nodes/worker-0', 'no/worker-0', 'worker-0'])
      expect(await readLine('upgrade-bundle', 'drill', name), name).to.include({ node: 'worker-0' });
    for (const name of ['upgradebundle/a', 'upgradebundles/a', 'upgradebundle.upgrade-bundle.openshift.io/a', 'a'])
      for (const verb of ['status', 'resume', 'abort', 'clean'])
        expect(await readLine('upgrade-bundle', verb, name), name).to.include({ name: 'a' });
  });

  it('of plan and upgrade may be the bundle, without its option', async () => {
    for (const verb of ['plan', 'upgrade']) {
      expect(await readLine('mirror-registry', verb, 'a.tar')).to.include({ target: 'a.tar' });
      const { code, stderr } = await executeProgram('oc-adm_mirror_registry', [verb, 'a.tar', '--bundle=b.tar']);
      expect([code, stderr.split('\n')[0]]).to.deep.equal([
        2,
        'error (usage): give only one of the argument and --bundle',
      ]);
    }
    expect(await readLine('mirror-registry', 'certs', 'show')).to.include({ action: 'status' });
    for (const option of ['--output=state', '--dest-dir=state'])
      expect(await readLine('upgrade-bundle', 'gather', option, '-o', 'json')).to.include({
        destDir: 'state',
        format: 'json',
      });
  });

  it('answer a word that people try with the command for it', async () => {
    for (const program of programs) {
      const own = program.commands.map(({ usage }) => usage.split(' ', 1)[0]);
      const words = program.commands.flatMap(({ reflexes = [] }) => reflexes);
      expect(new Set(words).size).to.equal(words.length);
      expect(own).to.not.include.any.members(words);
      for (const { usage, reflexes = [] } of program.commands)
        for (const word of reflexes) {
          const { hint } = await failureOf(
            parse(program, [word], () => Promise.resolve()),
            'usage',
          );
          expect(hint, word).to.equal(`Did you mean ${usage.split(' ', 1)[0] ?? ''}?`);
        }
    }
  });

  it('have -o yaml in each command that has -o json', async () => {
    for (const { name, commands } of programs)
      for (const entry of commands) {
        const { options } = (await entry.load()).command;
        for (const { choices = [] } of [options['output'], options['format']].flatMap((option) => option ?? []))
          if (choices.includes('json')) expect(choices, `${name} ${entry.usage}`).to.include('yaml');
      }
  });
});
