#!/usr/bin/env node
console.log('with a first line', new Error('here').stack.split('\n')[1]);
