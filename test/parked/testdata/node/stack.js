function a() { return new Error('e').stack; }
console.log(a(), Error.stackTraceLimit);
Error.prepareStackTrace = (e, s) => s.map(c => [c.getFileName(), c.getLineNumber(), c.getColumnNumber(), c.getFunctionName(), c.isToplevel()].join());
console.log(a());
