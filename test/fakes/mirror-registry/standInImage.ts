import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { makeBlob, type TestLayer } from '../../support/content/layers.ts';
import { runSuccessfully } from '../../support/peers.ts';

// A stand-in for Quay, as user 1001: serves the requests of our program and of clients, with the
// mounted certificate. It is healthy only with the Redis of the pod and its password. It changes the
// database when it starts, and refuses a database that a newer version has changed. As a stand-in for
// Redis it checks the password of its secret, and as a stand-in for the pod’s own container it waits.
// In Python, because Node.js is ten times as large, and podman moves all of it often.
const program = `
import encodings.idna, json, os, re, signal, socket, sqlite3, ssl, sys, threading

def numbers(text):
    return [int(number) for number in re.findall('[0-9]+', text)]

def migrate(version):
    database = sqlite3.connect('/sqlite/quay_sqlite.db')
    database.execute('CREATE TABLE IF NOT EXISTS migration (image TEXT)')
    for (image,) in database.execute('SELECT image FROM migration').fetchall():
        if numbers(image) > numbers(version):
            raise Exception("Can't locate revision identified by '" + image + "'")
    database.execute('INSERT INTO migration VALUES (?)', (version,))
    database.commit()
    database.close()

def listen(port, answer):
    server = socket.create_server(('', port), backlog=128)
    def guard(connection):
        try:
            answer(connection)
        except OSError:
            pass
        finally:
            connection.close()
    def accept():
        while True:
            connection, _ = server.accept()
            threading.Thread(target=guard, args=(connection,), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()

def ask_redis(password):
    try:
        with socket.create_connection(('127.0.0.1', 6379), 5) as redis:
            redis.sendall(('AUTH ' + password + '\\r\\n').encode())
            return redis.recv(100).startswith(b'+OK')
    except OSError:
        return False

def answer_as_redis(connection):
    is_good = connection.recv(1000).decode() == 'AUTH ' + os.environ['REDIS_PASSWORD'] + '\\r\\n'
    connection.sendall(b'+OK\\r\\n' if is_good else b'-WRONGPASS invalid password\\r\\n')

def serve(version):
    if os.getuid() != 1001:
        raise Exception('not the user of Quay')
    migrate(version)
    stack = '/quay-registry/conf/stack/'
    with open(stack + 'config.yaml') as config:
        password = re.search('BUILDLOGS_REDIS:.*?password: ([^\\\\s]+)', config.read(), re.DOTALL)[1]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(stack + 'ssl.cert', stack + 'ssl.key')
    def answer(connection):
        with context.wrap_socket(connection, server_side=True) as secure:
            request = b''
            while b'\\r\\n\\r\\n' not in request:
                request += secure.recv(65536) or b'\\r\\n\\r\\n'
            path = (request.split() + [b'', b''])[1]
            services = {'auth': True, 'database': True, 'registry_gunicorn': True, 'redis': ask_redis(password)}
            is_ill = os.path.exists(stack + 'ill-' + version) or not services['redis']
            state = '503 Ill' if path == b'/health/instance' and is_ill else '200 OK'
            body = '{}' if path == b'/v2/' else json.dumps({'data': {'services': services}})
            head = ['HTTP/1.1 ' + state, 'Content-Length: ' + str(len(body)), 'Connection: close', '', body]
            secure.sendall('\\r\\n'.join(head).encode())
    listen(8443, answer)

if sys.argv[1:] == ['files']:
    for module in list(sys.modules.values()):
        for name in ['__file__', '__cached__']:
            path = getattr(module, name, None)
            if path and os.path.exists(path) and path != __file__:
                print(path)
    sys.exit()
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if 'REDIS_PASSWORD' in os.environ:
    listen(6379, answer_as_redis)
if sys.argv[2:3] == ['registry']:
    serve(sys.argv[1])
while True:
    signal.pause()
`;

/** The path of Python, here and in the images. */
export const interpreter = '/usr/bin/python3';

/**
 * Creates the only layer of an image that stands in for all images of a mirror registry: Python, its libraries, and
 * a program.
 */
export async function makeStandInLayer(): Promise<TestLayer> {
  const folder = await mkdtemp(join(tmpdir(), 'stand-in-'));
  try {
    await mkdir(join(folder, 'root'));
    await writeFile(join(folder, 'root/main.py'), program);
    const python = ['-SB', join(folder, 'root/main.py'), 'files'];
    const own = [interpreter, ...(await runSuccessfully(interpreter, python)).trim().split('\n')];
    const objects = [interpreter, ...own.filter((path) => path.endsWith('.so'))];
    const linked = (await runSuccessfully('ldd', objects)).matchAll(/^\t(?:.* => )?(\/\S+)/gm);
    const files = new Set([...own, ...[...linked].map(([, path = '']) => path)]);
    await runSuccessfully('cp', ['--parents', '--dereference', ...files, join(folder, 'root')]);
    const tar = join(folder, 'layer.tar');
    await runSuccessfully('tar', ['-C', join(folder, 'root'), '--owner=0', '--group=0', '-cf', tar, '.']);
    // A new volume gets the owner of the folder where it is mounted first.
    for (const name of ['sqlite', 'datastorage']) await mkdir(join(folder, 'volumes', name), { recursive: true });
    const owned = ['-C', join(folder, 'volumes'), '--owner=1001', '--group=0', '--mode=0775', '-rf', tar];
    await runSuccessfully('tar', [...owned, './sqlite', './datastorage']);
    const content = await readFile(tar);
    const diffId = `sha256:${createHash('sha256').update(content).digest('hex')}` as const;
    return { ...makeBlob(gzipSync(content, { level: 1 })), diffId };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Returns the entry point of its containers. Quay is not healthy if `ill-<version>` exists beside its configuration.
 */
export function standInEntrypoint(version: string): string[] {
  return [interpreter, '-SB', '/main.py', version];
}
