globalThis.n = (globalThis.n || 0) + 1;
if (globalThis.n === 1) import('./main.js').then(m => console.log(Object.keys(m), n));
else console.log('again');
