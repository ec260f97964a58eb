// What of the web's classes the engine lacks, or has otherwise.

function defined(of: object, name: string | symbol, value: unknown): void {
  Object.defineProperty(of, name, { value, writable: true, configurable: true });
}

defined(ReadableStream.prototype, Symbol.asyncIterator, async function* (this: ReadableStream) {
  const reader = this.getReader();
  let isDone = false;
  try {
    while (!isDone) {
      const read = await reader.read();
      isDone = read.done;
      if (!isDone) yield read.value;
    }
  } finally {
    if (!isDone) await reader.cancel();
    reader.releaseLock();
  }
});

// Its exception comes at the end of the call, which it ends.
defined(AbortSignal.prototype, 'throwIfAborted', function (this: AbortSignal) {
  if (this.aborted) throw this.reason;
});

defined(AbortSignal, 'abort', (reason: unknown = new DOMException('this was aborted', 'AbortError')): AbortSignal => {
  const controller = new AbortController();
  controller.abort(reason);
  return controller.signal;
});

// Its timer is the engine's, which waits for ours.
defined(AbortSignal, 'timeout', (delay: number): AbortSignal => {
  const controller = new AbortController();
  setTimeout(() => controller.abort(new DOMException('the time is up', 'TimeoutError')), delay);
  return controller.signal;
});
