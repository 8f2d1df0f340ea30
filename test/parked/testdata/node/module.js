console.log(module.parent, require.resolve('./main.js'), Object.keys(require.cache), Object.keys(require), this === module.exports);
