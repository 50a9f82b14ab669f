import { registerHooks } from 'node:module';

// Loading a thousand generated modules takes a second of processor time in each process. Executables have the same few.
const index = new URL('../../.config/clientIndex.ts', import.meta.url).href;
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === './gen/index.js' && context.parentURL?.endsWith('/@kubernetes/client-node/dist/config.js') === true
      ? { url: index, shortCircuit: true }
      : next(specifier, context),
});
