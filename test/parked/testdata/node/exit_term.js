process.kill(process.pid, 'SIGTERM'); setInterval(() => {}, 1000);
