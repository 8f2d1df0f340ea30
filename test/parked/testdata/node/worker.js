const { Worker, isMainThread, parentPort, workerData, threadId } = require('worker_threads');
if (isMainThread) {
  const w = new Worker(__filename, { workerData: { n: 4 } });
  w.on('message', m => console.log('from', m)); w.on('exit', c => console.log('ended', c));
} else parentPort.postMessage([workerData, threadId, __filename, require.main === module, process.argv]);
