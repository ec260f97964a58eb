/** Names of WIT as names of JavaScript, as jco has them. */

/** A function, a parameter or a field: `tree-of` is `treeOf`. */
export function camel(name: string): string {
  const words = name.split('-');
  const [first = ''] = words;
  const made = first.toLowerCase() + words.slice(1).map(capital).join('');
  // An object with a function of this name would be taken for a promise.
  return made === 'then' ? 'then_' : made;
}

/** A class: `line-item` is `LineItem`. */
export function pascal(name: string): string {
  return name.split('-').map(capital).join('');
}

function capital(word: string): string {
  return word.slice(0, 1).toUpperCase() + word.slice(1).toLowerCase();
}
