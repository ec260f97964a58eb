// `fetch`: requests of a program, which the host checks one by one against what was granted.
//
// Owns redirections, what becomes of bodies, and errors. `Request`, `Response` and `Headers` are the engine's; its own `fetch` keeps a
// handle for each 8 KiB that it reads, and does not say why a request failed.

import { handle } from 'wasi:http/outgoing-handler@0.2.0';
import { Fields, OutgoingBody, OutgoingRequest, type ErrorCode, type FutureIncomingResponse, type IncomingResponse } from 'wasi:http/types@0.2.0';
import type { StreamError } from 'wasi:io/streams@0.2.0';

import { ready } from './loop';

const METHODS = ['get', 'head', 'post', 'put', 'delete', 'connect', 'options', 'trace', 'patch'];
const REDIRECTIONS = [301, 302, 303, 307, 308];
const MOST_REDIRECTIONS = 20;
const WITHOUT_BODY = [204, 205, 304];
// What another server is not told, and what there is none of without a body.
const SECRET = ['authorization', 'cookie', 'proxy-authorization'];
const OF_BODY = ['content-encoding', 'content-language', 'content-length', 'content-location', 'content-type'];
const PIECE_BYTES = 64n << 10n;
// Each holds handles of WASI's, of which a sandbox has some thousands.
const MOST_UNREAD = 1000;

/** What is sent. A body is bytes, so that it can be sent again. */
interface Asked {
  url: URL;
  method: string;
  headers: Headers;
  body: Uint8Array | undefined;
  signal: AbortSignal | undefined;
}

const latin1 = (text: string): Uint8Array => Uint8Array.from(text, (it) => it.charCodeAt(0));

function why({ tag, val }: ErrorCode, { url, method }: Asked): TypeError {
  const { host } = url;
  switch (tag) {
    case 'HTTP-request-denied':
      return new TypeError(`a request to ${host} was refused: it was not granted; grant it with --http ${host}, or the option http: ['${host}']`);
    case 'destination-IP-prohibited':
      return new TypeError(`a request to ${host} was refused: its address is not public, and has to be granted itself, with --http or the option http; the log of the task has it`);
    case 'connection-limit-reached':
      return new TypeError(`${method} ${url} was not sent: too many requests are under way; read the bodies of their responses, or end them with response.body.cancel()`);
  }
  const more = val === undefined ? '' : ` (${typeof val === 'string' ? val : JSON.stringify(val)})`;
  return new TypeError(`${method} ${url} has no response: ${tag}${more}`, { cause: { code: tag } });
}

function headersOf(given: Headers): Fields {
  try {
    return Fields.fromList([...given].map(([name, value]) => [name, latin1(value)]));
  } catch (error: any) {
    throw new TypeError(`the headers ${[...given.keys()].join(', ')} cannot be sent: ${error?.payload?.tag ?? error}`);
  }
}

function requestOf({ url, method, headers, body }: Asked): [OutgoingRequest, OutgoingBody | undefined] {
  const request = new OutgoingRequest(headersOf(headers));
  const known = method.toLowerCase();
  request.setMethod(METHODS.includes(known) ? { tag: known } : { tag: 'other', val: method });
  request.setScheme({ tag: url.protocol === 'https:' ? 'HTTPS' : 'HTTP' });
  request.setAuthority(url.host);
  request.setPathWithQuery(url.pathname + url.search);
  return [request, body && request.body()];
}

/** Writes a body, unless the server does not want all of it: what comes of that, the response says. */
async function write(to: OutgoingBody, bytes: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
  const stream = to.write();
  let at = 0;
  try {
    while (at < bytes.length) {
      const room = Number(stream.checkWrite());
      if (room > 0) stream.write(bytes.subarray(at, at + room));
      else await ready(stream.subscribe(), signal);
      at += room;
    }
  } finally {
    stream[Symbol.dispose]();
    if (at < bytes.length) to[Symbol.dispose]();
    else OutgoingBody.finish(to);
  }
}

async function answered(future: FutureIncomingResponse, asked: Asked): Promise<IncomingResponse> {
  try {
    await ready(future.subscribe(), asked.signal);
    const got: any = future.get();
    if (got.val.tag === 'err') throw why(got.val.val, asked);
    return got.val.val;
  } finally {
    future[Symbol.dispose]();
  }
}

async function send(asked: Asked): Promise<IncomingResponse> {
  const [request, body] = requestOf(asked);
  let future: FutureIncomingResponse;
  try {
    future = handle(request);
  } catch (error: any) {
    throw error?.payload === undefined ? error : why(error.payload, asked);
  }
  if (body !== undefined) write(body, asked.body!, asked.signal).catch(() => {});
  return answered(future, asked);
}

/** What gives up the bodies that nobody reads now, beginning with the one that has waited for longest. */
const unread = new Set<() => void>();

function streamOf(response: IncomingResponse, { url, signal }: Asked): ReadableStream<Uint8Array> {
  const body = response.consume();
  const stream = body.stream();
  const over = new AbortController();
  const end = (reason?: unknown) => {
    if (over.signal.aborted) return;
    // What is waited for goes before what it is of.
    over.abort(reason);
    unread.delete(giveUp);
    signal?.removeEventListener('abort', abort);
    stream[Symbol.dispose]();
    body[Symbol.dispose]();
  };
  const abort = () => end(signal!.reason);
  signal?.addEventListener('abort', abort);
  const giveUp = () => end(new TypeError(`the response of ${url} was given up: ${MOST_UNREAD} others were left unread after it; read bodies, or end them with response.body.cancel()`));
  const left = () => {
    unread.add(giveUp);
    if (unread.size > MOST_UNREAD) unread.values().next().value!();
  };
  left();
  const pull = async (to: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
    unread.delete(giveUp);
    for (;;) {
      if (over.signal.aborted) throw over.signal.reason;
      let bytes: Uint8Array;
      try {
        bytes = stream.read(PIECE_BYTES);
      } catch (error: any) {
        const failed: StreamError | undefined = error?.payload;
        const broken = failed?.tag === 'closed' ? undefined : new TypeError(`the response of ${url} has broken off: ${failed?.val.toDebugString() ?? error}`);
        failed?.val?.[Symbol.dispose]();
        end(broken);
        if (broken !== undefined) throw broken;
        return to.close();
      }
      if (bytes.length) return (left(), to.enqueue(bytes));
      await ready(stream.subscribe(), over.signal);
    }
  };
  return new ReadableStream({ pull, cancel: () => end() }, { highWaterMark: 0 });
}

function responseOf(from: IncomingResponse, asked: Asked, headers: Headers, redirected: boolean): Response {
  const status = from.status();
  const hasBody = asked.method !== 'HEAD' && !WITHOUT_BODY.includes(status);
  const response = new Response(hasBody ? streamOf(from, asked) : null, { status, headers });
  from[Symbol.dispose]();
  Object.defineProperty(response, 'url', { value: asked.url.href.replace(/#.*/, '') });
  Object.defineProperty(response, 'redirected', { value: redirected });
  return response;
}

/** Where a redirection leads: another request. */
function next(asked: Asked, status: number, to: URL): Asked {
  const headers = new Headers(asked.headers);
  let { method, body } = asked;
  if (status === 303 ? method !== 'HEAD' : status < 303 && method === 'POST') {
    [method, body] = ['GET', undefined];
    for (const name of OF_BODY) headers.delete(name);
  }
  if (to.origin !== asked.url.origin) for (const name of SECRET) headers.delete(name);
  return { ...asked, url: to, method, headers, body };
}

async function askedOf(input: string | URL | Request, init: RequestInit): Promise<Asked> {
  const request = new Request(input, init);
  const url = new URL(request.url);
  if (!/^https?:$/.test(url.protocol)) throw new TypeError(`fetch() sends requests to http: and https:, and not to ${url.protocol}`);
  if (url.username || url.password) throw new TypeError(`a URL of fetch() has no user name: give the header Authorization`);
  const signal = init.signal ?? (input instanceof Request ? input.signal : undefined);
  if (signal?.aborted) throw signal.reason;
  const { method, headers } = request;
  const body = request.body === null ? undefined : new Uint8Array(await request.arrayBuffer());
  const sent = new Headers(headers);
  if (body !== undefined) sent.set('content-length', String(body.length));
  return { url, method, headers: sent, body, signal };
}

async function fetched(input: string | URL | Request, init: RequestInit): Promise<Response> {
  let asked = await askedOf(input, init);
  for (let at = 0; ; at++) {
    const from = await send(asked);
    const fields = from.headers();
    const headers = new Headers();
    for (const [name, value] of fields.entries()) headers.append(name, String.fromCharCode(...value));
    fields[Symbol.dispose]();
    const to = headers.get('location');
    if (init.redirect === 'manual' || to === null || !REDIRECTIONS.includes(from.status())) return responseOf(from, asked, headers, at > 0);
    const next_ = next(asked, from.status(), new URL(to, asked.url));
    from[Symbol.dispose]();
    if (init.redirect === 'error') throw new TypeError(`${asked.url} redirects to ${next_.url}, and the option redirect is 'error'`);
    if (at === MOST_REDIRECTIONS) throw new TypeError(`${asked.url} redirects to ${next_.url}, after ${at} redirections`);
    asked = next_;
  }
}

globalThis.fetch = function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  return fetched(input, init ?? {});
} as typeof globalThis.fetch;
