process.on('SIGUSR2', (s, n) => { console.log(s, n); clearInterval(t); });
const t = setInterval(() => {}, 1000);
process.kill(process.pid, 'SIGUSR2');
