process.on('unhandledRejection', (r, p) => console.log('unhandled', r, p));
Promise.reject('why');
