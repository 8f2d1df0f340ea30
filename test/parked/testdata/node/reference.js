console.log(undefinedName);
