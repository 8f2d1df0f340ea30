const cluster = require('cluster');
if (cluster.isPrimary) { cluster.fork(); cluster.on('exit', (w, c) => console.log('worker', c, cluster.settings)); }
else process.exit(4);
