import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasPeer, run } from '../peers.ts';

/** A rule of policy.json, as containers-policy.json(5) defines it. */
type PolicyRule = Readonly<Record<string, unknown>>;

/** The skopeo that judges. That of Debian 12 reads no keys of policies; later ones do. */
const named = process.env['POLICY_SKOPEO'];
const program = named ?? 'skopeo';

/** Judges images by a policy.json, with `skopeo copy`. Call `close` at the end. */
export class PolicyJudge {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** Whether POLICY_SKOPEO names the judge. */
  static readonly isNamed = named !== undefined;

  static async open(): Promise<PolicyJudge> {
    const folder = await mkdtemp(join(tmpdir(), 'policy-judge-'));
    await mkdir(join(folder, 'registries.d'));
    await writeFile(join(folder, 'registries.d', 'all.yaml'), 'default-docker:\n  use-sigstore-attachments: true\n');
    return new PolicyJudge(folder);
  }

  /**
   * Returns whether skopeo accepts an image (`docker://…` or `containers-storage:…`) by some rules for `scope`. It is
   * pulled from `mirror` (HOST:PORT) instead of quay.io, if there is one.
   */
  async accepts(source: string, scope: string, rule: PolicyRule, mirror?: string): Promise<boolean> {
    const at = (name: string): string => join(this.#folder, name);
    const [transport = ''] = source.split(':');
    const transports = { [transport]: { [scope]: [rule] } };
    await writeFile(at('policy.json'), JSON.stringify({ default: [{ type: 'reject' }], transports }));
    const table = `[[registry]]\nprefix = "quay.io"\nlocation = "${mirror ?? ''}"\ninsecure = true\n`;
    await writeFile(at('registries.conf'), mirror === undefined ? '' : table);
    await rm(at('copy'), { recursive: true, force: true });
    const config = ['--registries-conf', at('registries.conf'), '--registries.d', at('registries.d')];
    // The layers of a store are unpacked: signatures do not hold for their copies.
    const copy = ['copy', '--src-tls-verify=false', '--remove-signatures', source, `dir:${at('copy')}`];
    const { code } = await run(program, [...config, '--policy', at('policy.json'), ...copy]);
    return code === 0;
  }

  /** Returns whether skopeo is installed and accepts an image that is signed. */
  async isAble(...signed: Parameters<PolicyJudge['accepts']>): Promise<boolean> {
    if (!hasPeer('skopeo')) return false;
    const isAble = await this.accepts(...signed);
    if (!isAble)
      console.warn(`      ${program} has no sigstore: the cases are judged without it (POLICY_SKOPEO names another)`);
    return isAble;
  }

  close(): Promise<void> {
    return rm(this.#folder, { recursive: true, force: true });
  }
}
