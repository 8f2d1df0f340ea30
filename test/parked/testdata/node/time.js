console.log(Math.abs(Date.now() - require('fs').statSync('/work').mtimeMs) < 30000, process.cpuUsage().user > 0, process.hrtime.bigint() > 0n, new Date(0).toString());
