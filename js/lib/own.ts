/**
 * A node of one's own.
 *
 * Owns how the program is found and started, and that it ends with this process however that ends: it watches its standard input,
 * which this process keeps open.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';

import { WasmrunError } from './errors.js';

/** How long a node may take to end. */
const END_MS = 10_000;

/** The `wasmrun` that belongs to this package, or the one that is named, or on the path. */
function program(): string {
  const beside = fileURLToPath(new URL('../native/wasmrun', import.meta.url));
  return process.env['WASMRUN_BIN'] || (existsSync(beside) ? beside : 'wasmrun');
}

export class OwnNode {
  readonly address: string;
  readonly #folder: string;
  readonly #process: ChildProcess;

  private constructor(address: string, folder: string, child: ChildProcess) {
    this.address = address;
    this.#folder = folder;
    this.#process = child;
  }

  /** Starts one, and waits until it listens. */
  static async start(options: readonly string[]): Promise<OwnNode> {
    const folder = mkdtempSync(join(tmpdir(), 'wasmrun-'));
    const address = `unix:${folder}/node.sock`;
    const log = join(folder, 'log');
    const file = openSync(log, 'w');
    const named = program();
    const child = spawn(named, ['node', 'start', '--tied', '--address', address, ...options], {
      stdio: ['pipe', 'pipe', file],
      // Ctrl-C is for us: we say what is to end.
      detached: true,
    });
    closeSync(file);
    const node = new OwnNode(address, folder, child);
    // Its first line comes when it listens.
    const lines = createInterface({ input: child.stdout as Readable });
    const failed = once(child, 'error').then(([error]) => error as Error);
    const said = await Promise.race([once(lines, 'line'), once(lines, 'close').then(() => undefined), failed]);
    if (!Array.isArray(said)) {
      const why = said instanceof Error ? said.message : readFileSync(log, 'utf8').trim();
      rmSync(folder, { recursive: true, force: true });
      throw new WasmrunError(`cannot start ${named}: ${why}`, { cause: said });
    }
    lines.close();
    // It keeps nobody going.
    child.unref();
    for (const pipe of [child.stdin, child.stdout]) (pipe as unknown as { unref(): void }).unref();
    process.once('exit', node.#onExit);
    return node;
  }

  /** Ends it. What runs there ends too. */
  async end(): Promise<void> {
    process.off('exit', this.#onExit);
    const child = this.#process;
    if (child.exitCode === null && child.signalCode === null) {
      child.ref();
      const ended = once(child, 'exit');
      child.stdin?.end();
      const timer = setTimeout(() => child.kill('SIGKILL'), END_MS);
      await ended;
      clearTimeout(timer);
    }
    child.stdout?.destroy();
    this.#onExit();
  }

  readonly #onExit = (): void => rmSync(this.#folder, { recursive: true, force: true });
}
