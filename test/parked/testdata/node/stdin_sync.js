const fs = require('fs');
console.log(JSON.stringify(fs.readFileSync(0, 'utf8')), fs.fstatSync(0).isCharacterDevice(), fs.fstatSync(1).isFIFO(), fs.readlinkSync('/proc/self/fd/0'));
