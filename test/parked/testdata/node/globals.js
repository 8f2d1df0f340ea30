console.log(Object.getOwnPropertyNames(globalThis).sort().join());
