/** The agent on each node. */
export { runAgent } from './agent/agent.ts';
export type { ServedExecutable } from './agent/agentServer.ts';
