process.on('exit', c => { console.log('leaving', c); process.exitCode = 9; });
process.on('beforeExit', () => console.log('never'));
process.exit(5);
