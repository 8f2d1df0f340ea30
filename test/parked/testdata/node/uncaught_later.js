setTimeout(() => { throw new RangeError('later'); }, 1);
