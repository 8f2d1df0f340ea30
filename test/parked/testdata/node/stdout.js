console.log(process.stdout.isTTY, process.stdout.constructor.name, process.stdout.writableHighWaterMark, process.stdout._type, process.stderr._type, process.stdout.getColorDepth);
process.stdout.write('no newline');
