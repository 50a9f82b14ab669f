import { spawn } from 'node:child_process';
import { WebSocketServer, type RawData, type WebSocket } from 'ws';
import { reset, type Exchange, type Upgrade } from '../http/faultyServer.ts';
import type { Refusal } from './apiStatus.ts';

const known = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];

/** The versions of the channel protocol that test API servers offer. Kubernetes has the newer one since 1.30. */
export const offered = { protocols: known };

/**
 * Responds to an exec of a pod as an API server and a kubelet do. Runs the real command, with `/host` replaced by the
 * folder `root`, after the command `before`. The fault `resetUploadAfter` closes the connection after that many bytes
 * of input. With the fault `lateUpload`, the command gets them while the next one with input runs.
 */
export function execute(exchange: Exchange, { request, socket, head }: Upgrade, pod: PodPlace): void {
  const handleProtocols = (asked: Set<string>): string | false =>
    offered.protocols.find((protocol) => asked.has(protocol)) ?? false;
  const server = new WebSocketServer({ noServer: true, handleProtocols });
  server.handleUpgrade(request, socket, head, (connection) => run(exchange, connection, pod));
}

/** Passes on the input of broken connections. */
const late: (() => void)[] = [];

/** Where the commands of a pod run. */
interface PodPlace {
  readonly root: string;
  readonly before: readonly string[];
}

/** Refuses a request for another protocol with an HTTP response. */
export function refuseUpgrade({ socket }: Upgrade, { status, reason, object }: Refusal): void {
  socket.end(`HTTP/1.1 ${status} ${reason}\r\nConnection: close\r\n\r\n${JSON.stringify(object)}`);
}

function run(exchange: Exchange, connection: WebSocket, { root, before }: PodPlace): void {
  const words = [...before, ...exchange.query.getAll('command').map((word) => word.replaceAll('/host', root))];
  const [program = '', ...args] = words;
  const hasInput = exchange.query.get('stdin') === 'true';
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  if (!hasInput) child.stdin.end();
  child.stdin.on('error', () => undefined);
  const say = (stream: number, content: Uint8Array): void =>
    connection.send(Buffer.concat([Buffer.of(stream), content]));
  child.stdout.on('data', (chunk: Buffer) => say(1, chunk));
  child.stderr.on('data', (chunk: Buffer) => say(2, chunk));
  const { resetUploadAfter: limit = Infinity, lateUpload = false } = exchange.fault;
  if (lateUpload) {
    child.stdin.cork();
    late.push(() => child.stdin.end());
  }
  connection.on('message', (data: RawData) => {
    const message = data as Buffer;
    if (message[0] === 255) return void child.stdin.end();
    exchange.bytesReceived += message.length - 1;
    if (exchange.bytesReceived >= limit) reset(connection['_socket' as never]);
    else child.stdin.write(message.subarray(1));
    if (!lateUpload) for (const pass of late.splice(0)) pass();
  });
  // As in a kubelet, the rest of the output is dropped if the client is gone.
  connection.on('close', () => !lateUpload && child.stdin.end()).on('error', () => undefined);
  const finish = (status: object): void => {
    say(3, Buffer.from(JSON.stringify({ kind: 'Status', apiVersion: 'v1', metadata: {}, ...status })));
    connection.close();
  };
  let refused = false;
  child.on('error', ({ message }) => {
    refused = true;
    finish({ status: 'Failure', reason: 'InternalError', message, code: 500 });
  });
  child.on('close', (code) => {
    if (refused) return;
    if (code === 0) finish({ status: 'Success' });
    else {
      const causes = [{ reason: 'ExitCode', message: String(code) }];
      const message = `command terminated with non-zero exit code: exit status ${String(code)}`;
      finish({ status: 'Failure', reason: 'NonZeroExitCode', message, details: { causes } });
    }
  });
}
