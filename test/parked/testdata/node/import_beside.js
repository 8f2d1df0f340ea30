require('fs').writeFileSync('beside.mjs', 'export const v = 4; console.log(import.meta.url, await 5)');
import('./beside.mjs').then(m => console.log(m.v));
