/** The example of a service: built by componentize-js, served by the program of the package. */

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { test } from 'node:test';

const PAGE = '<html><head><title>A page</title>\n<meta name="description" content="What is in it"></head>';

const why = !existsSync('examples/link-preview.js') && 'it is not compiled here';
test('a service in JavaScript asks other servers', { skip: why, timeout: 240_000 }, async (t) => {
  const build = ['link-preview.js', '--wit', 'service.wit', '--world-name', 'service', '--out', 'link-preview.wasm'];
  const built = spawnSync('../node_modules/.bin/componentize-js', build, { cwd: 'examples', encoding: 'utf8' });
  assert.equal(built.status, 0, built.stderr);
  const pages = createServer((asked, answer) => {
    answer.statusCode = asked.url === '/' ? 200 : 404;
    // Its end does not come: what is wanted stands at the beginning.
    answer.write(PAGE);
  }).listen(0, '127.0.0.1');
  t.after(() => pages.close() && pages.closeAllConnections());
  await once(pages, 'listening');
  const there = `127.0.0.1:${pages.address().port}`;
  const serve = ['serve', 'examples/link-preview.wasm', '--listen', '127.0.0.1:0', '--http', there];
  const served = spawn('node_modules/.bin/wasmrun', serve, { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => served.kill('SIGKILL'));
  const [first] = await once(createInterface(served.stdout), 'line');
  const at = /http:\/\/\S+/.exec(first)?.[0];
  const ask = async (page) => {
    const answer = await fetch(`${at}/?url=${page}`);
    return [answer.status, await answer.json()];
  };
  const url = `http://${there}/`;
  assert.deepEqual(await ask(url), [200, { url, title: 'A page', description: 'What is in it' }]);
  assert.deepEqual(await ask(`${url}none`), [502, { error: "the page's server answered with 404" }]);
  assert.equal((await ask('http://127.0.0.1:1/'))[0], 502);
  assert.equal((await ask('nothing'))[0], 400);
  served.kill('SIGINT');
  assert.deepEqual(await once(served, 'exit'), [0, null]);
});
