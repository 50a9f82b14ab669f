/** The state of an update for support, without secrets. */
export { gatherState } from './gather/gatherState.ts';
export { Redactor } from './gather/redaction.ts';
