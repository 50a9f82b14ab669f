import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** A page in Chromium. */
export interface BrowserPage {
  /** Errors of scripts, and files that the browser refused to load. */
  readonly errors: readonly string[];
  /** Returns the value of an expression in the page. */
  evaluate<T>(expression: string): Promise<T>;
  close(): Promise<void>;
}

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: { readonly result?: { readonly value?: unknown } };
}

/** Opens a page of a width (pixels) in Chromium without a window, by its debugging protocol. */
export async function openInBrowser(url: string, width = 1000): Promise<BrowserPage> {
  const profile = await mkdtemp(join(tmpdir(), 'browser-'));
  const options = ['--headless', '--no-sandbox', '--disable-gpu', '--remote-debugging-port=0'];
  const child = spawn('chromium', [...options, `--user-data-dir=${profile}`, 'about:blank'], {
    stdio: 'ignore',
    // When it is killed, it leaves files there.
    env: { ...process.env, TMPDIR: profile },
  });
  const ended = once(child, 'exit');
  const close = async (): Promise<void> => {
    child.kill('SIGKILL');
    await ended;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  try {
    let port = '';
    while (port === '') {
      if (child.exitCode !== null) throw new Error(`chromium ended with ${child.exitCode}`);
      await sleep(20);
      port = (await readFile(join(profile, 'DevToolsActivePort'), 'utf8').catch(() => '')).split('\n')[0] ?? '';
    }
    const targets = (await (await fetch(`http://127.0.0.1:${port}/json`)).json()) as {
      readonly type: string;
      readonly webSocketDebuggerUrl: string;
    }[];
    const socket = new WebSocket(targets.find(({ type }) => type === 'page')?.webSocketDebuggerUrl ?? '');
    await once(socket, 'open');
    const errors: string[] = [];
    const waiting = new Map<number, (message: Message) => void>();
    socket.addEventListener('message', ({ data }) => {
      const message = JSON.parse(String(data)) as Message;
      if (message.id !== undefined) waiting.get(message.id)?.(message);
      else if (['Runtime.exceptionThrown', 'Log.entryAdded'].includes(message.method ?? ''))
        errors.push(JSON.stringify(message.params));
    });
    const call = (method: string, params: object = {}): Promise<Message> =>
      new Promise((resolve) => {
        const id = waiting.size + 1;
        waiting.set(id, resolve);
        socket.send(JSON.stringify({ id, method, params }));
      });
    await call('Runtime.enable');
    await call('Log.enable');
    const size = { width, height: 800, deviceScaleFactor: 1, mobile: width < 500 };
    await call('Emulation.setDeviceMetricsOverride', size);
    await call('Page.navigate', { url });
    const evaluate = async <T>(expression: string): Promise<T> => {
      const { result } = await call('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
      return result?.result?.value as T;
    };
    return { errors, evaluate, close };
  } catch (error) {
    await close();
    throw error;
  }
}
