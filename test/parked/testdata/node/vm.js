const vm = require('vm'); console.log(vm.runInNewContext('a + 1', { a: 2 }), vm.runInThisContext('typeof require'));
vm.runInThisContext('throw new Error("in vm")', 'made.js');
