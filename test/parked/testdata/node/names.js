console.log(__filename, __dirname, require.main === module, module.id, module.filename, module.loaded, module.children, module.paths);
