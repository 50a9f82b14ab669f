import { format } from 'node:util';

/** Redirects output of packages and Node.js itself, such as `MaxListenersExceededWarning`, to a listener. */
export function capturePackageOutput(listen: (text: string) => void): void {
  process.removeAllListeners('warning').on('warning', ({ name, message }) => {
    listen(`${name}: ${message}`);
  });
  const say = (...args: unknown[]): void => {
    listen(format(...args));
  };
  Object.assign(console, { log: say, info: say, warn: say, error: say, debug: say, trace: say });
}
