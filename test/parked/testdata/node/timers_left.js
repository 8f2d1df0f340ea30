const t = setInterval(() => { console.log('once'); clearInterval(t); }, 1);
console.log(process.getActiveResourcesInfo());
