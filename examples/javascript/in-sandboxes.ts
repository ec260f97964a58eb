// TypeScript in sandboxes: counts words by tasks, and adds them up in an actor. `node in-sandboxes.js` once it is compiled.

import { connect } from 'wasmrun';
import type * as words from './words.js';

const texts = ['the mill by the river', 'the river and the sea', 'a mill, a sea'];

const node = await connect();
const app = await node.program<typeof words>(new URL('words.ts', import.meta.url));
const totals = await app.Totals.create();
// What the tasks make goes to the actor, and not through here.
await Promise.all(texts.map((text) => totals.add(app.count.ref(text))));
for (const [word, times] of await totals.most(2)) console.log(`${word}: ${times}`);

// Code that nobody has read can start nothing, and ends after a second.
const { value } = await node.run('return words.join("-")', { inputs: { words: ['a', 'b'] }, timeLimit: 1000 });
console.log(value);
await node.close();
