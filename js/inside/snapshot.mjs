// A core module as it is after it has been initialised and has run: its memory becomes its data.
//
// Owns the world in which that happens, which is the same each time: clocks stand still, random numbers are none, and files are
// texts. What Wizer does, but for two things: it is the same in each build, and the calls that are to be fast have been made.

const ESUCCESS = 0;
const EBADF = 8;
const ENOENT = 44;
const PAGE = 65536;
// Fewer zeros than this between two stretches of data are data.
const GAP = 32;

/** WASI of texts, as far as the engine needs it. */
function wasi({ env, stdin, files }, memory) {
  const encoder = new TextEncoder();
  const open = new Map([[0, { bytes: encoder.encode(stdin), at: 0 }]]);
  let next = 4;
  const variables = Object.entries(env).map(([name, value]) => encoder.encode(`${name}=${value}\0`));
  const view = () => new DataView(memory().buffer);
  const text = (at, length) => new TextDecoder().decode(new Uint8Array(memory().buffer, at, length)).replace(/^\.?\//, '');
  const buffers = (at, count) =>
    Array.from({ length: count }, (_, of) => {
      const pair = [view().getUint32(at + 8 * of, true), view().getUint32(at + 8 * of + 4, true)];
      return new Uint8Array(memory().buffer, ...pair);
    });
  const known = {
    args_sizes_get: (count, size) => (view().setUint32(count, 0, true), view().setUint32(size, 0, true), ESUCCESS),
    args_get: () => ESUCCESS,
    environ_sizes_get(count, size) {
      view().setUint32(count, variables.length, true);
      view().setUint32(size, variables.reduce((sum, it) => sum + it.length, 0), true);
      return ESUCCESS;
    },
    environ_get(pointers, at) {
      for (const variable of variables) {
        view().setUint32(pointers, at, true);
        new Uint8Array(memory().buffer).set(variable, at);
        pointers += 4;
        at += variable.length;
      }
      return ESUCCESS;
    },
    clock_time_get: (_, __, at) => (view().setBigUint64(at, 1_000_000_000n, true), ESUCCESS),
    random_get: (at, length) => (new Uint8Array(memory().buffer, at, length).fill(42), ESUCCESS),
    fd_prestat_get(fd, at) {
      if (fd !== 3) return EBADF;
      view().setUint32(at, 0, true);
      view().setUint32(at + 4, 1, true);
      return ESUCCESS;
    },
    fd_prestat_dir_name: (_, at) => (view().setUint8(at, '/'.charCodeAt(0)), ESUCCESS),
    fd_fdstat_get(fd, at) {
      if (fd > 3 && !open.has(fd)) return EBADF;
      new Uint8Array(memory().buffer, at, 24).fill(0);
      // A directory, a file, or a terminal; and all that one can do with it.
      view().setUint8(at, fd === 3 ? 3 : fd > 3 ? 4 : 2);
      view().setBigUint64(at + 8, 0xffff_ffffn, true);
      view().setBigUint64(at + 16, 0xffff_ffffn, true);
      return ESUCCESS;
    },
    path_filestat_get(_, __, at, length, to) {
      const file = files[text(at, length)];
      if (file === undefined) return ENOENT;
      new Uint8Array(memory().buffer, to, 64).fill(0);
      view().setUint8(to + 16, 4);
      view().setBigUint64(to + 32, BigInt(encoder.encode(file).length), true);
      return ESUCCESS;
    },
    path_open(_, __, at, length, ___, ____, _____, ______, to) {
      const file = files[text(at, length)];
      if (file === undefined) return ENOENT;
      open.set(next, { bytes: encoder.encode(file), at: 0 });
      view().setUint32(to, next++, true);
      return ESUCCESS;
    },
    fd_read(fd, at, count, done) {
      const file = open.get(fd);
      if (file === undefined) return EBADF;
      const before = file.at;
      for (const buffer of buffers(at, count)) {
        const part = file.bytes.subarray(file.at, file.at + buffer.length);
        buffer.set(part);
        file.at += part.length;
      }
      view().setUint32(done, file.at - before, true);
      return ESUCCESS;
    },
    fd_seek(fd, offset, whence, to) {
      const file = open.get(fd);
      if (file === undefined) return EBADF;
      file.at = Number(offset) + [0, file.at, file.bytes.length][whence];
      view().setBigUint64(to, BigInt(file.at), true);
      return ESUCCESS;
    },
    fd_write(_, at, count, done) {
      const all = buffers(at, count);
      for (const buffer of all) process.stderr.write(buffer);
      view().setUint32(done, all.reduce((sum, it) => sum + it.length, 0), true);
      return ESUCCESS;
    },
    fd_close: (fd) => (open.delete(fd), ESUCCESS),
    proc_exit(code) {
      throw new Error(`it ends with ${code}`);
    },
  };
  return known;
}

/** The module with its memory as it is once `init` has run, and `warm`, which is given its exports. */
export async function snapshot(wasm, { world, host, init, warm }) {
  let exports;
  const known = { wasi_snapshot_preview1: wasi(world, () => exports.memory) };
  const module = await WebAssembly.compile(wasm);
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    const missing = () => {
      throw new Error(`it calls ${from} ${name} while it is built`);
    };
    const of_host = host?.[`${from} ${name}`];
    (imports[from] ??= {})[name] = known[from]?.[name] ?? (of_host === undefined ? missing : (...args) => of_host(exports, ...args));
  }
  ({ exports } = await WebAssembly.instantiate(module, imports));
  exports._initialize();
  exports[init]();
  warm(exports);
  return withMemory(wasm, new Uint8Array(exports.memory.buffer), ['_initialize', init]);
}

function leb(number) {
  const out = [];
  for (; number > 127; number = Math.floor(number / 128)) out.push((number & 127) | 128);
  return [...out, number];
}

function signed(number) {
  const out = [];
  for (;;) {
    const byte = number & 127;
    number >>= 7;
    if ((number === 0 && !(byte & 64)) || (number === -1 && byte & 64)) return [...out, byte];
    out.push(byte | 128);
  }
}

/** The module, which begins with this memory, and without these exports. */
function withMemory(wasm, memory, without) {
  let at = 8;
  const number = () => {
    for (let value = 0, scale = 1; ; scale *= 128) {
      const byte = wasm[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  const sections = [];
  while (at < wasm.length) {
    const id = wasm[at++];
    const size = number();
    sections.push({ id, start: at, end: at + size });
    at += size;
  }
  const section = (id) => sections.find((it) => it.id === id);
  const replace = (id, bytes) => Object.assign(section(id), { bytes });
  if (section(8) !== undefined) throw new Error('a module with a start function has no snapshot');

  // The first global is the stack's pointer, which is where it was: all below it is over.
  at = section(6).start;
  number();
  if (wasm[at] !== 0x7f || wasm[at + 1] !== 1 || wasm[at + 2] !== 0x41) throw new Error('the first global is no stack pointer');
  at += 3;
  memory.fill(0, 0, number());

  at = section(5).start;
  if (number() !== 1) throw new Error('it has several memories');
  const flags = number();
  number();
  const rest = wasm.subarray(at, section(5).end);
  replace(5, Buffer.from([1, flags, ...leb(memory.length / PAGE), ...rest]));

  at = section(7).start;
  const kept = [];
  for (let left = number(); left > 0; left--) {
    const from = at;
    const length = number();
    const name = new TextDecoder().decode(wasm.subarray(at, at + length));
    at += length + 1;
    number();
    if (!without.includes(name)) kept.push(wasm.subarray(from, at));
  }
  replace(7, Buffer.concat([Buffer.from(leb(kept.length)), ...kept]));

  const segments = stretches(memory);
  const written = segments.map(([start, end]) => {
    const head = [0, 0x41, ...signed(start), 0x0b, ...leb(end - start)];
    return Buffer.concat([Buffer.from(head), memory.subarray(start, end)]);
  });
  replace(11, Buffer.concat([Buffer.from(leb(segments.length)), ...written]));
  if (section(12) !== undefined) replace(12, Buffer.from(leb(segments.length)));

  const parts = [wasm.subarray(0, 8)];
  for (const { id, start, end, bytes = wasm.subarray(start, end) } of sections) {
    parts.push(Buffer.from([id, ...leb(bytes.length)]), bytes);
  }
  return Buffer.concat(parts);
}

/** Where memory is not zero. */
function stretches(memory) {
  const words = new Uint32Array(memory.buffer, memory.byteOffset, memory.length / 4);
  const found = [];
  for (let at = 0; at < words.length; at++) {
    if (words[at] === 0) continue;
    const last = found.at(-1);
    if (last !== undefined && 4 * at - last[1] <= GAP) last[1] = 4 * at + 4;
    else found.push([4 * at, 4 * at + 4]);
  }
  return found;
}
