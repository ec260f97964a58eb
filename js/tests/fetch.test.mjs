/** `fetch` in sandboxes: within what is granted, from a server on this machine. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { node } from './session.mjs';

const MIB = 1 << 20;
const LARGE_MIB = 192;

function large(answer) {
  const piece = Buffer.alloc(MIB, 'a');
  let left = LARGE_MIB;
  const write = () => {
    while (left-- > 0) if (!answer.write(piece)) return answer.once('drain', write);
    answer.end();
  };
  write();
}

const server = createServer((asked, answer) => {
  const to = (status, location) => answer.writeHead(status, { location }).end('elsewhere');
  switch (asked.url.replace(/\?.*/, '')) {
    case '/echo':
      answer.writeHead(200, { 'x-method': asked.method, 'content-type': asked.headers['content-type'] ?? '' });
      return asked.pipe(answer);
    case '/headers':
      return answer.setHeader('set-cookie', ['a=1', 'b=2']).end(JSON.stringify(asked.headers));
    case '/here':
      return to(302, 'echo');
    case '/same':
      return to(307, '/echo');
    case '/other':
      return to(302, `http://localhost:${server.address().port}/headers`);
    case '/away':
      return to(302, 'http://127.0.0.1:1/');
    case '/round':
      return to(302, '/round');
    case '/empty':
      return answer.end();
    case '/never':
      return;
    case '/slow':
      return answer.write('begins');
    case '/broken':
      return answer.writeHead(200, { 'content-length': 9 }).write('begins', () => asked.destroy());
    case '/large':
      return large(answer);
    default:
      answer.writeHead(404).end('none');
  }
}).listen(0, '127.0.0.1');
await once(server, 'listening');
after(() => server.close() && server.closeAllConnections());

const host = `127.0.0.1:${server.address().port}`;
const at = `http://${host}`;
const run = async (code, options) => (await node.run(code, { inputs: { at }, http: [host], ...options })).value;

test('a request has a response', async () => {
  const asked = run(`
    const body = JSON.stringify({ a: [1] });
    const response = await fetch(at + '/echo', { method: 'PATCH', body, headers: { 'Content-Type': 'application/json' } });
    const { status, ok, url, redirected } = response;
    return [status, ok, url, redirected, response.headers.get('x-method'), response.headers.get('content-type'), await response.json()];
  `);
  assert.deepEqual(await asked, [200, true, `${at}/echo`, false, 'PATCH', 'application/json', { a: [1] }]);
  assert.deepEqual(await run('const it = await fetch(new URL(at)); return [it.status, it.ok, await it.text()]'), [404, false, 'none']);
  const request = `
    const it = await fetch(new Request(at + '/headers', { headers: new Headers({ a: 'b' }) }));
    return [(await it.json()).a, it.headers.get('set-cookie')];
  `;
  assert.deepEqual(await run(request), ['b', 'a=1, b=2']);
});

test('what was not granted is refused, by the name of the flag', async () => {
  const why = { name: 'TypeError', message: `a request to ${host} was refused: it was not granted; grant it with --http ${host}, or the option http: ['${host}']` };
  await assert.rejects(run('await fetch(at)', { http: [] }), why);
  const status = node.remote(async (url) => (await fetch(url)).status);
  await assert.rejects(status(at), why);
  assert.equal(await status.options({ http: [host] })(at), 404);
  await assert.rejects(run('await fetch("http://127.0.0.1:1")', { http: ['127.0.0.1:1'] }), { message: /^GET http:\/\/127\.0\.0\.1:1\/ has no response: connection-refused$/ });
  await assert.rejects(run('await fetch("ftp://a.org")'), /http: and https:, and not to ftp:/);
});

test('a redirection is followed, as far as it was granted', async () => {
  const post = (path, more = '') => run(`const it = await fetch(at + '${path}', { method: 'POST', body: 'text', ${more} }); return [it.url, it.redirected, it.headers.get('x-method'), await it.text()]`);
  assert.deepEqual(await post('/here'), [`${at}/echo`, true, 'GET', '']);
  assert.deepEqual(await post('/same'), [`${at}/echo`, true, 'POST', 'text']);
  assert.deepEqual(await post('/same', "redirect: 'manual'"), [`${at}/same`, false, null, 'elsewhere']);
  await assert.rejects(post('/same', "redirect: 'error'"), /redirects to .*\/echo, and the option redirect is 'error'/);
  await assert.rejects(run(`await fetch(at + '/away')`), { message: /^a request to 127\.0\.0\.1:1 was refused: it was not granted; grant it with --http 127\.0\.0\.1:1/ });
  await assert.rejects(run(`await fetch(at + '/round')`), /after 20 redirections/);
  // Another server does not get what was for this one.
  const headers = `return (await fetch(at + '/other', { headers: { authorization: 'secret', a: 'b' } })).json()`;
  const found = await run(headers, { http: [host, `localhost:${server.address().port}`] });
  assert.deepEqual([found.authorization, found.a], [undefined, 'b']);
});

test('a signal or a limit ends a request', async () => {
  await assert.rejects(run(`await fetch(at + '/never', { signal: AbortSignal.timeout(20) })`), { name: 'TimeoutError' });
  await assert.rejects(run(`await (await fetch(at + '/slow', { signal: AbortSignal.timeout(200) })).text()`), { name: 'TimeoutError' });
  await assert.rejects(run(`await fetch(at + '/never', { signal: AbortSignal.abort() })`), { name: 'AbortError' });
  await assert.rejects(run(`await fetch(at + '/never')`, { timeLimit: 100 }), { name: 'LimitError' });
  assert.deepEqual(await run(`const reader = (await fetch(at + '/slow')).body.getReader(); await reader.read(); const next = reader.read(); await reader.cancel(); return next`), { value: undefined, done: true });
  await assert.rejects(run(`await (await fetch(at + '/broken')).text()`), /the response of .*\/broken has broken off/);
  await assert.rejects(run(`await (await fetch(at)).text(); await new Promise(() => {})`), /never settled/);
});

test('a large response takes no more memory than its pieces', async () => {
  const read = run(`let size = 0; for await (const piece of (await fetch(at + '/large')).body) size += piece.length; return size`, { memory: '96MiB' });
  assert.equal(await read, LARGE_MIB * MIB);
  const size = 8 * MIB;
  const echo = `const back = await fetch(at + '/echo', { method: 'POST', body: new Uint8Array(${size}).fill(7) }); const it = new Uint8Array(await back.arrayBuffer()); return [it.length, it[${size - 1}]]`;
  assert.deepEqual(await run(echo), [size, 7]);
});

test('of responses that are never read the oldest are given up', async () => {
  const found = await run(`
    const first = await fetch(at + '/empty?1');
    const reader = (await fetch(at + '/slow')).body.getReader();
    await reader.read();
    const next = reader.read();
    const all = [];
    while (all.length < 1000) all.push(...(await Promise.all(Array.from({ length: 50 }, () => fetch(at + '/empty')))));
    const why = await first.text().then(() => 'read', (error) => String(error));
    const texts = await Promise.all(all.slice(10).map((it) => it.text()));
    reader.cancel();
    return [why, new Set(texts), await next];
  `);
  assert.match(found[0], /^TypeError: the response of .*\/empty\?1 was given up: 1000 others were left unread after it; .*cancel\(\)$/);
  assert.deepEqual(found.slice(1), [new Set(['']), { value: undefined, done: true }]);
});

test('a program sends requests, and so do its tasks', async () => {
  const file = fileURLToPath(new URL('programs/fetch.ts', import.meta.url));
  const app = await node.program(file);
  assert.equal(await app.hoard.options({ http: [host] })(at, 20_000), 20_404);
  const env = { ...process.env, WASMRUN_ADDRESS: node.address };
  const submit = (...grants) => spawn('npx', ['wasmrun', 'submit', '--quiet', file, ...grants, '--', at], { env });
  const granted = submit('--http', host);
  assert.equal(await text(granted.stdout), '404 404 1\n');
  const refused = submit();
  assert.match(await text(refused.stderr), new RegExp(`TypeError: a request to ${host} was refused.*--http ${host}`));
});
