// What the interpreter has done before anybody uses it.
//
// Each page that a sandbox writes to is copied for it, which takes longer than most calls. What is made in a first call is in the
// snapshot; later ones write to a fifth of the pages.

const TIMES = 10;
const encoder = new TextEncoder();

const PROGRAM = `
const program = {
  plain: (...all) => all,
  later: async (...all) => all,
  fails() { throw new RangeError('warm'); },
  Kept: class { constructor(of) { this.of = of; } add(of) { return (this.of += of); } },
};
return program;
`;

const leb = (of) => (of > 127 ? [(of & 127) | 128, ...leb(of >> 7)] : [of]);
const text = (of) => [...leb(of.length), ...encoder.encode(of)];

/** An array of values as postcard has the record `data`: `values` is what `data.ts` writes of each. */
function data(...values) {
  const written = [0x6c, values.length, ...values.flat()];
  return [written.length, ...written, 0, 0];
}

const one = [0x69, 1, 1];
const half = [0x66, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f];
const word = [0x73, ...text('warm')];
const record = [0x64, 1, 0x73, ...text('x'), ...one];
const inputs = [record.length, ...record, 0, 0];

function put(exports, bytes, align = 1) {
  const at = exports.cabi_realloc(0, 0, align, bytes.length);
  new Uint8Array(exports.memory.buffer).set(bytes, at);
  return at;
}

function list(exports, args) {
  const pairs = new Uint32Array(args.flatMap((it) => [put(exports, it), it.length]));
  return [put(exports, new Uint8Array(pairs.buffer), 4), args.length];
}

const CALLS = 'wasmrun:runtime/calls@0.1.0#';

/** Calls an export of the fast lane, and checks how its answer begins. */
function call(exports, name, head, args, first) {
  const ret = exports[CALLS + name](...head, ...list(exports, args));
  if (first !== undefined) {
    const answer = new DataView(exports.memory.buffer);
    const [at, length] = [answer.getUint32(ret, true), answer.getUint32(ret + 4, true)];
    const bytes = new Uint8Array(exports.memory.buffer, at, length);
    if (bytes[0] !== first) throw new Error(`a call of the build goes wrong: ${new TextDecoder().decode(bytes)}`);
  }
  exports[`cabi_post_${CALLS}${name}`]?.(ret);
  return ret;
}

export function warm(exports) {
  const named = (name) => [put(exports, encoder.encode(name)), name.length];
  const programs = [[1, ...new Uint8Array(36)], [0, ...text(PROGRAM)]];
  let program;
  const function_ = (name, args, first = 0) => call(exports, 'call', named('interpreter#call'), [program, text(name), args], first);
  for (let time = 0; time < TIMES; time++) {
    program = programs[time % 2];
    function_('plain', data());
    function_('plain', data(one, half, word, record));
    function_('fails', data(), 1);
    call(exports, 'call', named('interpreter#run'), [text('return x + 1'), inputs], 0);
    const kept = call(exports, 'create', named('interpreter#instance'), [program, text('Kept'), data(one)]);
    call(exports, 'invoke', [kept, ...named('interpreter#[method]instance.call')], [text('add'), data(one)], 0);
    function_('later', data(one));
    function_('plain', data());
  }
  if (pollables !== 0) throw new Error('what is built waits for something');
}

// None is left to sandboxes.
let pollables = 0;

/** What the node does meanwhile. */
export const host = {
  'wasmrun:runtime/objects@0.1.0 [static]object.named'(exports, _, __, ret) {
    const view = new DataView(exports.memory.buffer);
    view.setUint8(ret, 0);
    view.setUint32(ret + 4, 1, true);
  },
  'wasmrun:runtime/objects@0.1.0 [method]object.get'(exports, _, __, ___, ret) {
    const bytes = encoder.encode(PROGRAM);
    const at = put(exports, bytes);
    const view = new DataView(exports.memory.buffer);
    // A buffer of u8.
    view.setUint8(ret, 0);
    view.setUint8(ret + 4, 1);
    view.setUint8(ret + 5, 0);
    view.setUint32(ret + 8, at, true);
    view.setUint32(ret + 12, bytes.length, true);
  },
  'wasmrun:runtime/objects@0.1.0 [resource-drop]object'() {},
  'wasi:clocks/monotonic-clock@0.2.10 now': () => 1_000_000_000n,
  'wasi:clocks/monotonic-clock@0.2.10 subscribe-instant': () => ++pollables,
  'wasi:clocks/monotonic-clock@0.2.10 subscribe-duration': () => ++pollables,
  'wasi:io/poll@0.2.10 [resource-drop]pollable': () => void --pollables,
};
