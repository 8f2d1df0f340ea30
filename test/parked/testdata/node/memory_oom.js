console.log('begins'); const held = []; for (;;) held.push(Buffer.alloc(8 << 20, 1));
