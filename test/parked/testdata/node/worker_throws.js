const { Worker } = require('worker_threads');
const w = new Worker('throw new Error("inside")', { eval: true });
w.on('error', e => console.log('error', e.message)); w.on('exit', c => console.log(c));
