console.log(process.stdin.isTTY, process.stdin.fd, process.stdin.constructor.name);
process.stdin.on('data', d => console.log('data', d)).on('end', () => console.log('end'));
