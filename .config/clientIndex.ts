/**
 * What the used modules of @kubernetes/client-node need of its generated modules. Their own index names a thousand
 * types of objects and clients of APIs, which no command uses.
 */
export { createConfiguration } from '@kubernetes/client-node/dist/gen/configuration.js';
export * from '@kubernetes/client-node/dist/gen/servers.js';
