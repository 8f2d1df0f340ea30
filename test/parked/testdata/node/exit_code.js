console.log('a'); process.exitCode = 3;
process.on('exit', c => console.log('exit', c));
