for (const k of Object.keys(process.env).sort()) console.log(k, process.env[k]);
console.log(require('fs').readFileSync('/proc/self/environ', 'utf8').split('\0').sort());
