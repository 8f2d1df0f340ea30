console.log(arguments.length, arguments[3], arguments[4], typeof arguments[0], typeof arguments[1]);
