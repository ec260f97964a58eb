// Runs in a sandbox of JavaScript: `picture.py` has its text sent there.

const INKS = ' .:-=+*#%@';

/** Prints rows of lights, each from 0 to 1, as lines of text. */
function draw(...rows) {
  for (const lights of rows) {
    const inks = lights.map((light) => INKS[Math.min(Math.floor(light * INKS.length), INKS.length - 1)]);
    console.log(inks.join(''));
  }
}
