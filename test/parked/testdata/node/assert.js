const assert = require('assert');
assert(1 ===
  2);
