process.on('uncaughtException', (e, origin) => console.log('caught', e.message, origin, e.stack));
null.x;
