import { expect } from 'chai';
import {
  ApiError,
  explainClusterRefusal,
  explainConnection,
  parseAnswer,
} from '../../../lib/cluster/apply/apiErrors.ts';
import type { KubeTarget } from '../../../lib/cluster/connection/kubeconfig.ts';
import { TransientError } from '../../../lib/content/http/retry.ts';
import { PluginError } from '../../../lib/errors.ts';
import { failureOf } from '../../support/program/failure.ts';

const target: KubeTarget = {
  name: 'site',
  source: '/home/a/.kube/config',
  server: 'https://api.example.com:6443',
  namespace: 'default',
  clusterName: 'site-cluster',
  userName: 'admin',
  cluster: {},
  user: {},
};
const where = 'https://api.example.com:6443 (site)';
const explain = (
  status: number,
  body: unknown,
  facts: Partial<Parameters<typeof explainClusterRefusal>[3]> = {},
  at = target,
): PluginError => explainClusterRefusal(status, body, at, { retryAfter: undefined, repeatable: false, ...facts });
const statusBody = (message: string, more: object = {}): object => ({ kind: 'Status', message, ...more });

describe('explainClusterRefusal', () => {
  it('has the message and the reason of the cluster, and a code for its status', () => {
    const codes = { 400: 'invalid-object', 404: 'not-found', 409: 'conflict', 410: 'conflict', 413: 'too-large' };
    for (const [status, code] of Object.entries({
      ...codes,
      405: 'not-served',
      415: 'not-served',
      422: 'invalid-object',
    })) {
      const details = { name: 'x', causes: [{ field: 'spec' }] };
      const error = explain(Number(status), statusBody(' It is so. ', { reason: 'Because', details }));
      expect(error).to.be.instanceOf(ApiError).and.not.be.instanceOf(TransientError);
      expect(error).to.deep.include({ code, message: 'It is so.', status: Number(status), reason: 'Because', details });
    }
    expect(explain(404, statusBody(''))).to.include({ message: `${where} answered 404`, reason: '' });
  });

  it('may be repeated after 429, and after 5xx with a pause or a read', () => {
    for (const [status, facts, code] of [
      [429, { retryAfter: 2000 }, 'rate-limited'],
      [503, { retryAfter: 2000 }, 'server-error'],
      [500, { repeatable: true }, 'server-error'],
    ] as const) {
      const error = explain(status, statusBody('busy'), facts);
      expect(error).to.be.instanceOf(TransientError);
      expect(error).to.include({ code, message: `${where} answered ${status}: busy` });
      expect(error).to.include({ retryAfter: 'retryAfter' in facts ? 2000 : undefined });
    }
    expect(explain(500, statusBody('etcd is full')))
      .to.be.instanceOf(ApiError)
      .and.include({ message: 'etcd is full' });
  });

  it('names a server that answers unlike an API server', () => {
    for (const body of ['<html>', undefined, { message: 'moved' }]) {
      const error = explain(302, body);
      expect(error).not.to.be.instanceOf(ApiError);
      expect(error.message).to.equal(`${where} answered 302, and not as a Kubernetes API server does`);
      expect(error.hint).to.contain(target.source).and.contain('proxy');
    }
  });

  it('names the user whose credentials are refused, and not the words of the cluster', () => {
    const error = explain(401, statusBody('Unauthorized'));
    expect(error).to.deep.include({
      code: 'unauthorized',
      message: `${where} refuses the credentials of the user “admin” (${target.source})`,
      hint: 'Log in again with “oc login”, or choose another user.',
      settings: ['user', 'token'],
    });
    const nobody = explain(401, {}, {}, { ...target, userName: '' });
    expect(nobody.message).to.contain('refuses a request without credentials');
  });

  it('tells when the client certificate of a refused user expired', () => {
    const certificateExpiry = new Date('2026-01-02T03:04:05.678Z');
    const { message, hint } = explain(401, {}, { certificateExpiry });
    expect(message).to.match(/\(\/home\/a\/\.kube\/config\): its client certificate expired at 2026-01-02T03:04:05Z$/);
    expect(hint).to.match(/^“oc login” does not renew it\. .*node-kubeconfigs/);
    expect(explain(403, {}, { certificateExpiry }).message).not.to.contain('expired');
  });

  it('names the right that a user lacks, and the command that checks it', () => {
    const hintOf = (message: string): string | undefined => {
      const error = explain(403, statusBody(message));
      expect(error).to.deep.include({ code: 'denied', message, settings: ['context'] });
      return error.hint;
    };
    const start = 'nodes is forbidden: User "anna" cannot list resource';
    expect(hintOf(`${start} "nodes" in API group "" at the cluster scope`)).to.equal(
      '“anna” needs the right to list nodes: check with “oc auth can-i list nodes”, or use the context of an administrator.',
    );
    expect(hintOf(`${start} "leases" in API group "coordination.k8s.io" in the namespace "my ns"`)).to.contain(
      "“oc auth can-i list leases.coordination.k8s.io -n 'my ns'”",
    );
    expect(hintOf('admission webhook denied the request')).to.match(/^This is the message of the cluster\./);
  });
});

describe('explainConnection', () => {
  it('says of a certificate where its authority is stated', () => {
    const cause = new Error('self-signed');
    const error = explainConnection(new PluginError('tls', 'not trusted', { cause }), target);
    expect(error).to.deep.include({
      code: 'tls',
      message: 'the cluster site: not trusted',
      settings: ['clusterCertificateAuthority', 'insecureSkipTlsVerify'],
      cause,
    });
    expect(error.hint).to.match(/^Check certificate-authority-data of the cluster “site-cluster” in \/home\/a/);
    const unnamed = explainConnection(new PluginError('tls', 'x'), { ...target, clusterName: '' });
    expect(unnamed.hint).to.match(/^Use a kubeconfig that has the authority of the cluster/);
  });

  it('says of a server that cannot be reached where its address is stated', () => {
    const error = explainConnection(new PluginError('unreachable', 'no route to host'), target);
    expect(error).to.deep.include({ message: 'the cluster site: no route to host', settings: ['server'] });
    expect(error.hint).to.match(/^Check that the cluster is up and that api\.example\.com:6443 of \/home\/a/);
  });

  it('leaves other errors as they are', () => {
    const error = new PluginError('interrupted', 'interrupted');
    expect(explainConnection(error, target)).to.equal(error);
  });
});

describe('parseAnswer', () => {
  it('returns the value of JSON, and names a server that sends something else', async () => {
    expect(parseAnswer('{"a":[1]}', target)).to.deep.equal({ a: [1] });
    const { message, hint } = await failureOf(
      Promise.resolve().then(() => parseAnswer('<html>', target)),
      'server-error',
    );
    expect(message).to.equal(`${target.server} answered with something that is not JSON`);
    expect(hint).to.contain(target.source);
  });
});
