import { expect } from 'chai';
import { commandsIn, listCommands } from '../../../lib/readiness/lint/shell.ts';

const commands = (text: string): string[] => listCommands(text).map((words) => words.join('␣'));

describe('listCommands', () => {
  it('splits commands at separators, lines and subshells', () => {
    expect(commands('a b; c & d && e || f | g\nh (i j) k')).to.deep.equal([
      ...['a␣b', 'c', 'd', 'e', 'f', 'g', 'h', 'i␣j', 'k'],
    ]);
  });

  it('joins quoted parts and continued lines to words', () => {
    expect(commands(`a 'b; c'"d\\"e"f\\ g \\\n h`)).to.deep.equal(['a␣b; cd"ef g␣h']);
    expect(commands('a "b\\\nc"')).to.deep.equal(['a␣bc']);
  });

  it('shows substitutions in words, and lists their commands first', () => {
    expect(commands('x=$(a b) y')).to.deep.equal(['a␣b', 'x=$(…)␣y']);
    expect(commands('x "-`a`-" ${b c}')).to.deep.equal(['a', 'x␣-$(…)-␣${b c}']);
  });

  it('leaves out comments and the targets of redirections', () => {
    expect(commands('a #b; c\nd 2> e < f >>g h#i')).to.deep.equal(['a', 'd␣h#i']);
  });

  it('reads an unclosed quote or brace as plain text', () => {
    expect(commands("it's a")).to.deep.equal(["it's␣a"]);
    expect(commands('${a b')).to.deep.equal(['${a␣b']);
    expect(commands('$a {b}')).to.deep.equal(['$a␣{b}']);
  });
});

describe('commandsIn', () => {
  const read = (text: string, name = 'x'): string[] => commandsIn(text, name).map((words) => words.join(' '));

  it('reads scripts of a shell, and of no other interpreter', () => {
    expect(read('#!/bin/bash\na b')).to.deep.equal(['a b']);
    expect(read('#!/usr/bin/env sh\na')).to.deep.equal(['a']);
    expect(read('#!/usr/bin/python3\na b')).to.deep.equal([]);
    expect(read('a b', 'run')).to.deep.equal(['a b']);
    for (const name of ['x.md', 'x.yaml', 'x.PY']) expect(read('a b', name), name).to.deep.equal([]);
  });

  it('reads the Exec lines of units, without their prefixes, comments and other settings', () => {
    const unit = '[Service]\nExecStartPre=-/bin/a \\\n  b\n# ExecStart=c\nExecStart=@!d\nEnvironment=e\n';
    expect(read(unit)).to.deep.equal(['/bin/a b', 'd']);
  });

  it('reads the commands of podman that Quadlet makes of its files', () => {
    expect(read('[Container]\nImage=x/y\nPull=newer\nPodmanArgs=--cpus=2\n')).to.deep.equal([
      'podman run --pull=newer --cpus=2 x/y',
    ]);
    expect(read('[Image]\nImage=x/y\nPolicy=missing\n')).to.deep.equal(['podman image pull --policy=missing x/y']);
    expect(read('[Artifact]\nArtifact=x/y:1\n')).to.deep.equal(['podman artifact pull x/y:1']);
    expect(read('[Build]\nPull=always\n')).to.deep.equal(['podman build --pull=always']);
    expect(read('[Container]\nImage=x/y\nAutoUpdate=registry\n')).to.deep.equal([
      ...['podman run x/y', 'podman auto-update x/y'],
    ]);
  });

  for (const opening of ['`', '$(', '${', `"'`, '(('])
    it(`reads a script with 99,999 times ${opening}`, () => {
      expect(() => commandsIn(`#!/bin/sh\n${opening.repeat(99_999)}`, 'x.sh')).not.to.throw();
    });
});
