require('fs').writeFileSync('beside.js', 'exports.v = __filename; exports.p = module.parent && module.parent.filename');
console.log(require('./beside'), module.children.map(c => c.filename));
