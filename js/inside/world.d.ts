// What the component's imports are in JavaScript, by componentize-js.

declare module 'wasmrun:runtime/objects@0.1.0' {
  export type Form = { tag: 'postcard' } | { tag: 'buffer'; val: string };
  export type Failure = { kind: string; message: string; origin: string; payload?: Uint8Array };
  export type Fault = { tag: 'failed'; val: Failure } | { tag: 'timed-out' } | { tag: 'deadlock' | 'refused'; val: string };
  export class Object {
    static named(name: Uint8Array): Object;
    id(): string;
    name(): Uint8Array;
    duplicate(): Object;
    size(timeoutMs?: bigint): bigint;
    get(timeoutMs?: bigint): { form: Form; bytes: Uint8Array };
    cancel(): 'cancelled' | 'runs-on' | 'over' | 'asked';
    [Symbol.dispose](): void;
  }
  export function put(form: Form, bytes: Uint8Array): Object;
  export function putWith(form: Form, bytes: Uint8Array, names: Uint8Array[]): Object;
  export function wait(objects: Object[], count: number, timeoutMs?: bigint): Uint32Array;
}

declare module 'wasmrun:runtime/tasks@0.1.0' {
  import { Object } from 'wasmrun:runtime/objects@0.1.0';
  export type Argument = { tag: 'value'; val: Uint8Array } | { tag: 'object'; val: Object };
  export type Options = {
    resources: [string, string][];
    retries?: number;
    retryOnError?: boolean;
    timeLimitMs?: bigint;
    priority?: number;
    labelSelector?: string;
    strategy?: string;
  };
  export function spawn(name: string, args: Argument[], options?: Options): Object;
}

declare module 'wasmrun:runtime/actors@0.1.0' {
  import { Object } from 'wasmrun:runtime/objects@0.1.0';
  import { Argument } from 'wasmrun:runtime/tasks@0.1.0';
  export type Options = {
    resources: [string, string][];
    name?: string;
    restarts?: number;
    callRetries?: number;
    labelSelector?: string;
    strategy?: string;
    timeLimitMs?: bigint;
  };
  export class Actor {
    static named(name: Uint8Array): Actor;
    id(): string;
    name(): Uint8Array;
    call(method: string, args: Argument[]): Object;
    kill(): void;
    [Symbol.dispose](): void;
  }
  export function create(name: string, args: Argument[], options?: Options): Actor;
  export function find(name: string): Actor;
}

declare module 'wasmrun:runtime/context@0.1.0' {
  export function taskId(): string;
  export function attempt(): number;
  export function node(): string;
  export function arrayIndex(): bigint | undefined;
  export function resources(): { name: string; amount: bigint; units: { id: number; amount: bigint }[] }[];
}

declare module 'wasi:cli/environment@0.2.0' {
  export function getArguments(): string[];
  export function getEnvironment(): [string, string][];
}
