const s = require('fs').statSync(__filename);
console.log(s.mode.toString(8), s.isFile(), s.uid, s.gid, s.size, s.nlink, Date.now() - s.mtimeMs < 30000, require('fs').realpathSync(__filename));
