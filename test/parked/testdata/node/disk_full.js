const fs = require('fs'); const fd = fs.openSync('/tmp/big', 'w'); const b = Buffer.alloc(4 << 20); let n = 0;
try { for (;;) n += fs.writeSync(fd, b); } catch (e) { console.log(e.code, n > 50 << 20); }
