require('fs').writeFileSync('d.json', '{"a": 1}');
console.log(require('./d.json'), require('./d'));
