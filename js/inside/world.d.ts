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

declare module 'wasi:io/poll@0.2.0' {
  export interface Pollable {
    [Symbol.dispose](): void;
  }
  export function poll(pollables: Pollable[]): Uint32Array;
}

declare module 'wasi:clocks/monotonic-clock@0.2.0' {
  import { Pollable } from 'wasi:io/poll@0.2.0';
  export function subscribeDuration(nanoseconds: bigint): Pollable;
}

declare module 'wasi:io/streams@0.2.0' {
  import { Pollable } from 'wasi:io/poll@0.2.0';
  export type StreamError = { tag: 'last-operation-failed'; val: Failed } | { tag: 'closed'; val?: undefined };
  export interface Failed {
    toDebugString(): string;
    [Symbol.dispose](): void;
  }
  export interface InputStream {
    read(most: bigint): Uint8Array;
    subscribe(): Pollable;
    [Symbol.dispose](): void;
  }
  export interface OutputStream {
    checkWrite(): bigint;
    write(bytes: Uint8Array): void;
    subscribe(): Pollable;
    [Symbol.dispose](): void;
  }
}

declare module 'wasi:http/types@0.2.0' {
  import { Pollable } from 'wasi:io/poll@0.2.0';
  import { InputStream, OutputStream } from 'wasi:io/streams@0.2.0';
  export type Method = { tag: string; val?: string };
  export type ErrorCode = { tag: string; val?: unknown };
  export type Result<T, E> = { tag: 'ok'; val: T } | { tag: 'err'; val: E };
  export class Fields {
    static fromList(entries: [string, Uint8Array][]): Fields;
    entries(): [string, Uint8Array][];
    [Symbol.dispose](): void;
  }
  export class OutgoingRequest {
    constructor(headers: Fields);
    body(): OutgoingBody;
    setMethod(method: Method): void;
    setPathWithQuery(path: string): void;
    setScheme(scheme: { tag: 'HTTP' | 'HTTPS' }): void;
    setAuthority(authority: string): void;
  }
  export class OutgoingBody {
    write(): OutputStream;
    [Symbol.dispose](): void;
    static finish(body: OutgoingBody): void;
  }
  export class FutureIncomingResponse {
    subscribe(): Pollable;
    get(): Result<Result<IncomingResponse, ErrorCode>, void> | undefined;
    [Symbol.dispose](): void;
  }
  export class IncomingResponse {
    status(): number;
    headers(): Fields;
    consume(): IncomingBody;
    [Symbol.dispose](): void;
  }
  export class IncomingBody {
    stream(): InputStream;
    [Symbol.dispose](): void;
  }
}

declare module 'wasi:http/outgoing-handler@0.2.0' {
  import { FutureIncomingResponse, OutgoingRequest } from 'wasi:http/types@0.2.0';
  export function handle(request: OutgoingRequest): FutureIncomingResponse;
}
