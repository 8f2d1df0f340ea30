const cp = require('child_process');
if (process.argv[2] === 'child') { process.send({ file: __filename, argv: process.argv, execArgv: process.execArgv }); }
else cp.fork(__filename, ['child']).on('message', m => console.log(m)).on('exit', c => console.log('exit', c));
