setTimeout(() => console.log('timeout'), 0); setImmediate(() => console.log('immediate', performance.now() > 0));
process.nextTick(() => console.log('tick')); Promise.resolve().then(() => console.log('micro')); console.log('main');
setTimeout(() => {}, 1e6).unref();
