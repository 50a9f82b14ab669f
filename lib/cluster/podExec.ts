import type { IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import type { RawData, WebSocket } from 'ws';
import { explainNetworkError, interrupted } from '#content/http';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { fieldsOf, listOf } from '#fields';
import { explainConnection, explainClusterRefusal, parseAnswer } from './apply/apiErrors.ts';
import type { KubeTarget } from './connection/kubeconfig.ts';
import type { Access, Session } from './connection/session.ts';

/** A command to run in a container of a pod. */
export interface PodCommand {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
  /** The program and its arguments. */
  readonly command: readonly string[];
  /**
   * The standard input. API servers before Kubernetes 1.30 cannot signal its end, so the program must know the length.
   */
  readonly input?: AsyncIterable<Buffer>;
}

/** The end of a command in a container: its exit code, and the beginning of its output. */
export interface PodCommandResult {
  /** The exit code; 0 for success. */
  readonly code: number;
  /** The first 64 KiB of each output stream. */
  readonly stdout: string;
  readonly stderr: string;
}

/** The streams of the channel protocol: the first byte of each message. */
const streams = { input: 0, stdout: 1, stderr: 2, status: 3, close: 255 } as const;
/** The protocols, the preferred one first. Only version 5 can signal the end of the input. */
const protocols = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
const handshakeTimeout = 30_000;
/** The pause between pings in milliseconds, and the number of unanswered pings after which the connection is dead. */
const heartbeat = 20_000;
const missedBeats = 6;
/** The time for which the connection may stay open after the end of the command, in milliseconds. */
const farewell = 5000;
const kept = 64 * 1024;

/** Runs commands in containers, as `oc exec` does, over WebSocket. */
export class PodExec {
  readonly #target: KubeTarget;
  readonly #session: Session;
  readonly #context: Context;

  constructor(target: KubeTarget, session: Session, context: Context) {
    this.#target = target;
    this.#session = session;
    this.#context = context;
  }

  /**
   * Runs a command to its end, and returns its exit code. Throws ApiError for refusals, `unreachable` if the connection
   * fails or ends early, `command-failed` if the container could not run it, and `interrupted`.
   */
  async run(command: PodCommand): Promise<PodCommandResult> {
    const socket = await this.#connect(command);
    const stop = (): void => socket.terminate();
    this.#context.signal.addEventListener('abort', stop);
    try {
      return await converse(socket, command, this.#target);
    } catch (error) {
      if (this.#context.signal.aborted) throw interrupted();
      throw error;
    } finally {
      this.#context.signal.removeEventListener('abort', stop);
      socket.terminate();
    }
  }

  async #connect(command: PodCommand): Promise<WebSocket> {
    const access = await this.#session.access();
    try {
      return await this.#open(command, access);
    } catch (error) {
      if (!isPluginError(error, 'unauthorized') || !this.#session.renewable) throw error;
      return await this.#open(command, await this.#session.access(access));
    }
  }

  async #open({ namespace, pod, container, command, input }: PodCommand, access: Access): Promise<WebSocket> {
    const { signal, log } = this.#context;
    const path = ['namespaces', namespace, 'pods', pod, 'exec'].map(encodeURIComponent).join('/');
    const url = new URL(`${this.#target.server}/api/v1/${path}`);
    for (const word of command) url.searchParams.append('command', word);
    const flags = { container, stdin: String(input !== undefined), stdout: 'true', stderr: 'true' };
    for (const [name, value] of Object.entries(flags)) url.searchParams.set(name, value);
    log('debug', `exec in ${namespace}/${pod}: ${command.join(' ')}`);
    // Loaded on first use, because few commands need it.
    const { WebSocket } = await import('ws');
    checkInterrupted(signal);
    const { agent, headers } = access;
    const socket = new WebSocket(url, protocols, { agent, headers, handshakeTimeout, perMessageDeflate: false });
    return await new Promise((resolve, reject) => {
      const stop = (): void => socket.terminate();
      signal.addEventListener('abort', stop);
      const settle = (finish: () => void): void => {
        signal.removeEventListener('abort', stop);
        finish();
      };
      socket.once('open', () => {
        // Pauses until a listener reads the received data.
        socket.pause();
        settle(() => resolve(socket));
      });
      // The listener for the response gets no later errors.
      socket.once('unexpected-response', (_, response) => {
        void explainAnswer(response, this.#target).then((error) => {
          settle(() => reject(error));
          socket.terminate();
        });
      });
      socket.once('error', (error) => {
        const reason = signal.aborted
          ? interrupted()
          : explainConnection(explainNetworkError(error, url), this.#target);
        settle(() => reject(reason));
      });
    });
  }
}

async function explainAnswer(response: IncomingMessage, target: KubeTarget): Promise<PluginError> {
  const { statusCode: status = 0 } = response;
  const body = await text(response).catch(() => '');
  let answer: unknown;
  try {
    answer = parseAnswer(body, target);
  } catch {
    answer = undefined;
  }
  return explainClusterRefusal(status, answer, target, { retryAfter: undefined, repeatable: false });
}

/** Sends the input, collects the output, and waits for the end. */
async function converse(socket: WebSocket, command: PodCommand, target: KubeTarget): Promise<PodCommandResult> {
  const texts = new Map<number, Buffer[]>();
  const sizes = new Map<number, number>();
  const end: { status?: Buffer } = {};
  let unanswered = 0;
  const pulse = setInterval(() => {
    unanswered += 1;
    if (unanswered > missedBeats) socket.terminate();
    else socket.ping();
  }, heartbeat);
  let last: NodeJS.Timeout | undefined;
  socket.on('pong', () => (unanswered = 0));
  socket.on('message', (data: RawData) => {
    unanswered = 0;
    const message = bytesOf(data);
    const stream = message[0] ?? -1;
    const content = message.subarray(1);
    if (stream === streams.status) {
      end.status = content;
      last = setTimeout(() => socket.terminate(), farewell);
      return;
    }
    const size = sizes.get(stream) ?? 0;
    sizes.set(stream, size + content.length);
    texts.set(stream, [...(texts.get(stream) ?? []), content.subarray(0, Math.max(0, kept - size))]);
  });
  const closed = new Promise<void>((resolve) => {
    socket.once('close', () => resolve()).on('error', () => undefined);
  });
  socket.resume();
  try {
    // A command may end before its input is sent.
    await Promise.race([closed, send(socket, command.input).then(() => closed)]);
  } finally {
    clearInterval(pulse);
    clearTimeout(last);
  }
  const textOf = (stream: number): string => Buffer.concat(texts.get(stream) ?? []).toString();
  if (!end.status) throw cutOff(command, target);
  const code = exitCodeOf(parseAnswer(end.status.toString(), target), command);
  return { code, stdout: textOf(streams.stdout), stderr: textOf(streams.stderr) };
}

async function send(socket: WebSocket, input: AsyncIterable<Buffer> | undefined): Promise<void> {
  if (!input) return;
  const write = async (stream: number, content: Uint8Array): Promise<boolean> => {
    // Waits until the connection has sent this piece.
    return await new Promise((resolve) => {
      socket.send(Buffer.concat([Buffer.of(stream), content]), (error) => resolve(!error));
    });
  };
  for await (const chunk of input) if (!(await write(streams.input, chunk))) return;
  if (socket.protocol === protocols[0]) await write(streams.close, Buffer.of(streams.input));
}

function bytesOf(data: RawData): Buffer {
  if (Array.isArray(data)) return Buffer.concat(data);
  return Buffer.isBuffer(data) ? data : Buffer.from(data);
}

/** Returns the exit code in a Status object. Throws `command-failed` if the command did not run. */
function exitCodeOf(answer: unknown, { pod, command }: PodCommand): number {
  const { status, reason, message, details } = fieldsOf(answer);
  if (status === 'Success') return 0;
  const cause = listOf(fieldsOf(details)['causes']).find((each) => each['reason'] === 'ExitCode');
  if (reason === 'NonZeroExitCode' && cause) return Number(cause['message']);
  const words = typeof message === 'string' ? message : 'the cluster does not say why';
  throw new PluginError('command-failed', `${command[0] ?? ''} could not be run in the pod ${pod}: ${words}`, {
    hint: 'Check the pod: oc describe pod, oc logs.',
  });
}

function cutOff({ pod }: PodCommand, target: KubeTarget): PluginError {
  return new PluginError('unreachable', `the connection to the pod ${pod} of ${target.name} was cut`, {
    hint: 'A proxy, a load balancer or the node closed the connection. Run the same command again to resume.',
  });
}
