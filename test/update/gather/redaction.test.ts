import { expect } from 'chai';
import { Redactor } from '../../../lib/update/gather/redaction.ts';

/** Passwords as people choose them. Each test adds a number, so that a rest is found. */
const passwords = ['HUNTER', "it's", 'p@ss', 'a,b', 'x/y', 'Über', '"q', '100%'];
const words = ['HUNTER', 'a.b-c', 'x_Y', '12345678', "it's"];
/** Tokens and keys have letters and digits only. */
const letters = ['HUNTER', 'xY', '12345678'];

const pod = (container: object, metadata: object = {}): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'a', ...metadata },
  spec: { containers: [{ name: 'c', ...container }] },
});
const variable = (name: string) => (secret: string) => pod({ env: [{ name, value: secret }] });
const args =
  (...list: string[]) =>
  (secret: string) =>
    pod({ args: list.map((each) => each.replace('%', () => secret)) });
const script = (line: string) => (secret: string) => pod({ command: ['sh', '-c', line.replace('%', () => secret)] });
const annotation =
  (key: string, value = '%') =>
  (secret: string) =>
    pod({}, { annotations: { [key]: value.replace('%', () => secret) } });
const proxy = (field: string, url: string) => (secret: string) => ({
  kind: 'Proxy',
  spec: { [field]: url.replace('%', () => secret) },
  status: { [field]: url.replace('%', () => secret) },
});
const log = (line: string) => (secret: string) => line.replaceAll('%', () => secret);
const encode = (text: string) => Buffer.from(text).toString('base64');
const encodedLog = (line: string, text: string) => (secret: string) =>
  line.replace('%', () => encode(text.replace('%', () => secret)));

type Plant = (secret: string) => unknown;

/** Places for any password, also with quotes and blanks. */
const places: Readonly<Record<string, Plant>> = {
  'data of a Secret': (secret) => ({ kind: 'Secret', data: { key: encode(secret), other: secret } }),
  'stringData of a Secret': (secret) => ({ kind: 'Secret', stringData: { any: secret } }),
  'a Secret in a List': (secret) => ({ kind: 'List', items: [{ kind: 'Secret', data: { k: secret } }] }),
  'what kubectl keeps': annotation('kubectl.kubernetes.io/last-applied-configuration', '{"env":"%"}'),
  'managed fields': (secret) => ({ metadata: { managedFields: [{ manager: secret }] } }),
  DB_PASSWORD: variable('DB_PASSWORD'),
  PGPASS: variable('PGPASS'),
  'a variable of any name': variable('FLAVOR'),
  accessKeyId: variable('accessKeyId'),
  DOCKERCONFIGJSON: variable('DOCKERCONFIGJSON'),
  PWD_ADMIN: variable('PWD_ADMIN'),
  'a proxy variable': (secret) => pod({ env: [{ name: 'HTTPS_PROXY', value: `http://u:${secret}@proxy:3128` }] }),
  '--password X': args('--password', '%'),
  '--token=X': args('--token=%'),
  '--proxy-pass=X': args('--proxy-pass=%'),
  '-p X': args('-p', '%'),
  '--client-secret X': args('serve', '--client-secret', '%', '--v=2'),
  '-u name:X': args('-u', 'admin:%'),
  '--user name:X': args('--user', 'admin:%'),
  'an annotation of a site': annotation('note'),
  'an annotation of a company': annotation('example.com/contact'),
  'a secret annotation of the platform': annotation('machineconfiguration.openshift.io/bearer-token'),
  'a label of a site': (secret) => pod({}, { labels: { owner: secret } }),
  httpProxy: proxy('httpProxy', 'http://alice:%@proxy.example:3128'),
  httpsProxy: proxy('httpsProxy', 'https://alice:%@proxy.example:3128/'),
  'a token in a kubeconfig': (secret) => ({ users: [{ name: 'a', user: { token: secret } }] }),
  'a password in a kubeconfig': (secret) => ({ users: [{ user: { username: 'a', password: secret } }] }),
  'a key in a kubeconfig': (secret) => ({ users: [{ user: { 'client-key-data': encode(secret) + secret } }] }),
  'an auth file': (secret) => ({ auths: { 'quay.io': { auth: encode(`u:${secret}`), email: secret } } }),
  'a nested secret': (secret) => ({ spec: { oauth: { clientSecret: { value: secret, more: [secret] } } } }),
  bearerToken: (secret) => ({ spec: { bearerToken: secret } }),
  'spec.apiKey': (secret) => ({ spec: { apiKey: secret } }),
  '.dockerconfigjson': (secret) => ({ '.dockerconfigjson': secret }),
  'JSON in a log': (secret) => `I1128 request ${JSON.stringify({ user: 'a', password: secret, n: 1 })}`,
  'JSON in JSON in a log': (secret) => JSON.stringify({ msg: JSON.stringify({ token: secret }) }),
  'an auth file in a log': (secret) =>
    `read ${JSON.stringify({ auths: { r: { username: secret, password: secret } } })} of it`,
  'a header in a log': log('Authorization: Bearer %'),
  'a cookie in a log': log('Set-Cookie: session=%; Path=/'),
  'X-Registry-Auth in a log': log('X-Registry-Auth: %'),
  'YAML in a log': (secret) => `password: ${secret}\nnext: 1`,
  'quoted YAML in a log': (secret) => `a:\n  PASSWORD: '${secret.replaceAll("'", "''")}'\n  b: c`,
  'a block of YAML in a log': (secret) => `data:\n  password: |\n    ${secret}\n    ${secret}\n  other: kept`,
  'a value in double quotes': (secret) => `"password" : ${JSON.stringify(`${secret} with blank`)}`,
};

/** Places for one word: a shell, a header or a log would split another. */
const wordPlaces: Readonly<Record<string, Plant>> = {
  'curl -u': script('curl -u admin:% https://x'),
  'podman login -p': script('podman login -u a -p % registry'),
  sshpass: script('sshpass -p % ssh host'),
  'mysql -p': script('mysql -h db -p% app'),
  'export in a script': script('export API_KEY=%; run'),
  'a here document': script('cat <<E\nsecret=%\nE'),
  'password=X': log('connecting with password=%, user=a'),
  'pwd=X': log('pwd=%'),
  'passphrase: X': log('passphrase: %'),
  'aws_secret_access_key=X': log('aws_secret_access_key=%'),
  'client-key-data: X': log('client-key-data: %'),
  'token=X in a query': log('GET /a?access_token=%&b=1'),
  'sig=X in a query': log('GET https://blob.example/a?sv=1&sig=%&se=2'),
  'basic auth': encodedLog('authorization: basic %', 'user:%'),
  'base64 of an auth file': encodedLog('config %', '{"auths":{"quay.io":{"auth":"%"}}}'),
  'base64 of base64': (secret) => `x ${encode(encode(JSON.stringify({ password: secret })))} y`,
  'base64 in an annotation': annotation(
    'machineconfiguration.openshift.io/x',
    encode('{"auths":{"r":{"auth":"dTpw"}}}') + ' token=%',
  ),
  'a URL in a log': log('proxy http://user:%@proxy:80 refused'),
  'a user of a URL': log('https://%@github.example/x.git'),
  'a URL without a scheme': log('via user:%@proxy.example:3128'),
  'a key of AWS': log('using AKIA1234567890ABCDEF and secret_key=%'),
  'a netrc': log('machine x login a password %'),
  'a colored name': log('\x1b[32mpass\x1b[0mword\x1b[0m=%'),
  'a condition': (secret) => ({
    status: { conditions: [{ type: 'A', message: `login with token=${secret} failed` }] },
  }),
  'an event': (secret) => ({ kind: 'Event', message: `pull http://u:${secret}@r/v2/ failed` }),
};

/** The same in forms of other programs. */
const otherPlaces: Readonly<Record<string, Plant>> = {
  'a parameter': (secret) => ({
    parameters: [
      { name: 'DB_PASSWORD', value: secret },
      { name: 'token', default: secret },
    ],
  }),
  'a pull secret': (secret) => ({ spec: { pullSecret: JSON.stringify({ auths: { r: { auth: secret } } }) } }),
  'a literal': args('create', '--from-literal=password=%'),
  'an option of Go': log('run -password % now'),
  'kubeadm join': log('kubeadm join host --token % --x'),
  XML: log('<bindPassword>%</bindPassword>'),
  'a form': (secret) => `user=a&password%3D${secret}&b=c`,
  'a connection string': log('Server=x;User Id=a;Password=%;Pooling=1'),
  'an account key': log('AccountName=a;AccountKey=%;'),
  jdbc: log('jdbc:mysql://h/db?user=u&password=%'),
  redis: log('redis://:%@host:6379/0'),
  mongodb: log('mongodb+srv://u:%@h/db'),
  'a struct of Go': log('&{Username:a Password:% Host:h}'),
  'a dump of Go': log('Password:(string) (len=7) "%",'),
  'a list of headers': log('{"Authorization":["Token %"],"b":1}'),
  'a vault header': log("-H 'X-Vault-Token: %'"),
  'a spaced assignment': log('client_secret = %'),
  'an arrow': log('password => %'),
  'a sentence': log('the password is %'),
  'a webhook': log('posting to https://hooks.example.com/services/T0/X%'),
  'a data URL': (secret) => `data:text/plain;base64,${encode(`password: ${secret}`)}`,
  'an exec probe': (secret) => pod({ livenessProbe: { exec: { command: ['redis-cli', '-a', secret, 'ping'] } } }),
  'a probe header': (secret) =>
    pod({ livenessProbe: { httpGet: { httpHeaders: [{ name: 'X-Api-Key', value: secret }] } } }),
};

/** Places whose form allows letters and digits only. */
const letterPlaces: Readonly<Record<string, Plant>> = {
  'sha256~X': log('token sha256~%abcdef'),
  ghp_X: log('cloning with ghp_%abcdefgh'),
  'a JWT': log('eyJhbGciOiJSUzI1NiJ9.%abcdef.%c2ln'),
  'a private key without an end': log('I1128 -----BEGIN PRIVATE KEY-----\nMIIE%truncated'),
  'an OpenSSH key': log('-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl%\n-----END OPENSSH PRIVATE KEY-----'),
  'a private key': log('-----BEGIN RSA PRIVATE KEY-----\nMIIE%\n-----END RSA PRIVATE KEY-----'),
  'a private key in JSON': log('{"key":"-----BEGIN EC PRIVATE KEY-----\\nMHc%\\n-----END EC PRIVATE KEY-----\\n"}'),
};

describe('Redactor', () => {
  let planted = 0;
  const check = (plant: Plant, form: string): void => {
    planted += 1;
    const secret = `${form}Z${planted}Z`;
    const mark = `Z${planted}Z`;
    const redactor = new Redactor();
    const value = plant(secret);
    const result = typeof value === 'string' ? redactor.text(value) : JSON.stringify(redactor.object(value));
    expect(result, form).to.not.include(mark);
    expect(result).to.not.include(encode(secret).slice(0, -2));
    const isDropped = /manager|env/.test(JSON.stringify(value)) || redactor.counts.length > 0;
    expect(isDropped, 'it was counted').to.equal(true);
  };
  for (const [what, plant] of Object.entries(places))
    it(`leaves out a secret: ${what}`, () => {
      for (const form of passwords) check(plant, form);
    });
  for (const [what, plant] of Object.entries({ ...wordPlaces, ...otherPlaces }))
    it(`leaves out a secret word: ${what}`, () => {
      for (const form of words) check(plant, form);
    });
  for (const [what, plant] of Object.entries(letterPlaces))
    it(`leaves out a token or key: ${what}`, () => {
      for (const form of letters) check(plant, form);
    });
  after(() => expect(planted).to.be.at.least(200));

  it('keeps text that is no secret', () => {
    const redactor = new Redactor();
    const kept = pod({
      image: 'quay.io:5000/a/b:4.20@sha256:0123',
      args: ['--v=2', '--kubeconfig-dir=/etc', '-u', 'root', '--port', '8443'],
      env: [
        { name: 'NODE_NAME', value: 'worker-0' },
        { name: 'RELEASE_VERSION', value: '4.20.3' },
        { name: 'TOKEN', valueFrom: { secretKeyRef: { name: 'a', key: 'token' } } },
      ],
      volumeMounts: [{ name: 'token', mountPath: '/var/run/secrets' }],
    });
    expect(redactor.object(kept)).to.deep.equal(kept);
    const lines = [
      'I1128 10:00:01.000001 1 loop.go:12] loading 3 of 190 images, 12.5 MiB/s',
      'the token is missing',
      'https://mirror:5443/v2/openshift/release/blobs/sha256:0123456789abcdef',
      'GET /api/v1/namespaces/openshift-machine-config-operator/pods?limit=500 200',
      'secretName: bundle-token',
      'key: node-role/master',
      'pulling registry.example:5000/a/b@sha256:0123',
    ];
    expect(redactor.text(lines.join('\n'))).to.equal(lines.join('\n'));
    expect(redactor.counts).to.deep.equal([]);
  });

  it('counts redactions by kind', () => {
    const redactor = new Redactor();
    redactor.object(pod({ env: [{ name: 'A', value: 'b' }] }, { annotations: { a: 'b', c: 'd' } }));
    redactor.text('password=a token=b http://u:p@h');
    expect(redactor.counts).to.deep.equal([
      { what: 'URL with credentials', count: 1 },
      { what: 'annotation or label', count: 2 },
      { what: 'environment variable', count: 1 },
      { what: 'password or secret', count: 2 },
    ]);
  });

  it('ends soon for long texts of any kind', () => {
    const size = 300_000;
    for (const part of [
      'a',
      'a:',
      'a=',
      ' ',
      '\n',
      'curl ',
      '://',
      '://a',
      '@',
      'a@',
      '"',
      '\\"',
      '{',
      '-----BEGIN PRIVATE KEY-----\n',
      'password',
      'password:',
      "password: '",
      'eyJ',
      'A1b2',
      '--a ',
      '.',
      'x-auth',
      'login a password ',
    ])
      new Redactor().text(part.repeat(size / part.length));
  });
});
