let n = 0;
process.on('beforeExit', c => { console.log('before', c); if (n++ < 2) setTimeout(() => {}, 1); });
