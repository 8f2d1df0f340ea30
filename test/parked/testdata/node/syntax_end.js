console.log('never shown');
if (true) {
