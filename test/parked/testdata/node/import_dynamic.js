import('fs').then(fs => console.log(typeof fs.readFileSync, Object.keys(fs).length > 50));
import('./none.mjs').catch(e => console.log(e.code, e.message));
