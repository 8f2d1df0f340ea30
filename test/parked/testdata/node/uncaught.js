function outer() { inner(); }
function inner() { throw new Error('bad'); }
outer();
