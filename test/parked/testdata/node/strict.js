'use strict';
console.log(this, (function () { return this; })());
frozen = 3;
