console.log(require('module').builtinModules.join(), process.versions, process.release.name, process.features);
