console.log(typeof fs, typeof path, typeof require, typeof module, typeof navigator, typeof crypto);
