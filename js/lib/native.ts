/** The compiled part, as TypeScript sees it. */

import { createRequire } from 'node:module';

/** A session with a node. What it is asked for has a number, under which the answer comes. */
export interface NativeSession {
  connect(id: number, address: string | null, tenant: string | null, folder: string | null, job: string): void;
  isConnected(): boolean;
  /** What came: frames, and the buffers that they name. */
  take(): ArrayBuffer[];
  /** Does what the first bytes of a packet say. */
  send(packet: Uint8Array, length: number, buffers: Uint8Array[]): void;
  load(id: number, bytes: Uint8Array): void;
  /** A function or class that asks for more: its number. */
  withOptions(item: number, json: string): number;
  findActor(id: number, name: string): void;
  explain(id: number, name: string, item: number): void;
  nodes(id: number): void;
  close(id: number): void;
}

interface Native {
  version(): string;
  /** `bell` is called when there is something to take. */
  Session: new (bell: () => void) => NativeSession;
}

export const native = createRequire(import.meta.url)('../native/wasmrun.node') as Native;
