const cp = require('child_process');
console.log(cp.execFileSync('sh', ['-c', 'echo child; ls /proc/self/fd'], { encoding: 'utf8' }));
console.log(cp.spawnSync('sh', ['-c', 'exit 3']).status, cp.spawnSync(process.execPath, ['-p', 'process.argv'], { encoding: 'utf8' }).stdout);
