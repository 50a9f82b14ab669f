import { format } from 'node:util';

/** Sends what packages and Node.js itself would print, such as `MaxListenersExceededWarning`, to a listener instead. */
export function capturePackageOutput(listen: (text: string) => void): void {
  process.removeAllListeners('warning').on('warning', ({ name, message }) => {
    listen(`${name}: ${message}`);
  });
  const say = (...args: unknown[]): void => {
    listen(format(...args));
  };
  Object.assign(console, { log: say, info: say, warn: say, error: say, debug: say, trace: say });
}
