/** A machine and its root file system: paths, files, programs, units and its screen. */
export {
  drillFile,
  executablePath,
  holdFile,
  mirrorFile,
  mirrorFolder,
  mirrorStateFile,
  mountFolder,
  nodeStateFolder,
  pathOnHost,
  pinFile,
  registriesFile,
  screenFile,
  screenFolder,
  screenLinks,
  type Host,
} from './machine/host.ts';
export { HostCommands, isClockSynchronized, type Scope } from './machine/hostCommands.ts';
export { HostFiles, fileLimit, openMachineFolder, type ConfinedPath } from './machine/hostFiles.ts';
export { HostFolder } from './machine/hostFolder.ts';
export { LoginScreen, formatText } from './machine/loginScreen.ts';
export { NodeSignal, signalKinds, type SignalKind } from './machine/nodeSignal.ts';
export { findOnPath, runCommand, runProgram, runProgramWithin } from './machine/programs.ts';
