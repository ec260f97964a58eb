/** The examples that the documentation shows, as people run them. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { test } from 'node:test';

for (const [args, says] of [
  [['price-orders.js'], /total 38\.79 eur/],
  [['learn-digits.js', '2', '4'], /\d % of 360 unknown digits are read right/],
  [['in-sandboxes.js'], /^the: 4\n.*: 2\na-b\n$/],
]) {
  test(args.join(' '), { skip: !existsSync(`examples/${args[0]}`) && 'it is not compiled here' }, () => {
    const ran = spawnSync(process.execPath, args, { cwd: 'examples', encoding: 'utf8', timeout: 240_000 });
    assert.match(ran.stdout, says, ran.stderr);
    assert.equal(ran.status, 0);
  });
}
