const fs = require('fs');
for (const fd of fs.readdirSync('/proc/self/fd')) { try { console.log(fd, fs.readlinkSync('/proc/self/fd/' + fd)); } catch (e) { console.log(fd, e.code); } }
