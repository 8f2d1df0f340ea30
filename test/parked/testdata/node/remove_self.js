require('fs').unlinkSync(__filename);
function f() { throw new Error('no source'); }
f();
