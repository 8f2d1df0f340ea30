if (require.main === module && !globalThis.once) {
  globalThis.once = true;
  console.log(require('./main.js') === module.exports, require(__filename));
}
console.log('loaded', module.id);
