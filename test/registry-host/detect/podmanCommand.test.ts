import { expect } from 'chai';
import { parsePodmanCommand, valuesOf, type PodmanCommand } from '../../../lib/registry-host/detect/podmanCommand.ts';
import { parseUnitFile } from '../../../lib/registry-host/detect/units.ts';

function parse(line: string): PodmanCommand | undefined {
  const file = parseUnitFile('u', `[Service]\nExecStart=${line}\n`);
  return parsePodmanCommand({ ...file.settings[0]!, file });
}

describe('parsePodmanCommand', () => {
  it('tells options from the image, however values are attached', () => {
    const command = parse(
      '-/usr/bin/podman --log-level=debug run -it --name a -v/x:/y --volume=/z:/w -e A=1 --replace --memory 2g ' +
        'img:1 registry -v',
    )!;
    expect(command.image?.text).to.equal('img:1');
    expect(command.command.map(({ text }) => text)).to.deep.equal(['registry', '-v']);
    expect(valuesOf(command, 'volume').map(({ value }) => value)).to.deep.equal(['/x:/y', '/z:/w']);
    expect(command.options.map(({ name }) => name)).to.include.members(['interactive', 'tty', 'memory', 'env']);
  });

  it('reads the infra image of a pod', () => {
    const command = parse('/usr/bin/podman pod create --infra-image p:1 -p 8443:8443 --replace')!;
    expect(valuesOf(command, 'infra-image')[0]?.value).to.equal('p:1');
    expect(valuesOf(command, 'publish')[0]?.value).to.equal('8443:8443');
    expect(command.image).to.equal(undefined);
  });

  it('passes over commands that are no podman', () => {
    expect(parse('/usr/bin/docker run a')).to.equal(undefined);
    expect(parse('/usr/bin/podman pull a')).to.equal(undefined);
  });
});
