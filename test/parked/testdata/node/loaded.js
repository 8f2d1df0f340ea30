console.log(process.moduleLoadList.filter(m => m.startsWith('Internal')).length > 0, process.moduleLoadList.filter(m => m.startsWith('NativeModule')).sort().join('\n'));
