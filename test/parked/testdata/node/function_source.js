function f(a, /* kept */ b) { return a + b; } // not this
console.log(f.toString(), require('fs').readFileSync(__filename, 'utf8').length, module.constructor.wrapper);
