/** The agent on each node. */
export { runAgent } from './agent/agentLoop.ts';
export type { ServedExecutable } from './agent/agentServer.ts';
