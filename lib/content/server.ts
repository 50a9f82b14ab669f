/** Servers of content for registry clients, and of one page for a browser. */
export { servePage } from './server/pageServer.ts';
export {
  serveContent,
  type ContentServer,
  type ServeOptions,
  type ServedFile,
  type ServedResponse,
  type SizedContent,
  type WithdrawableContent,
} from './server/server.ts';
