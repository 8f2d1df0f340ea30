with ({ a: 1 }) console.log(a); console.log(010, (function () { return this === globalThis; })());
