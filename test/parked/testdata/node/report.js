const r = process.report.getReport(); console.log(r.header.commandLine, r.header.cwd, r.header.event, r.header.trigger, r.libuv.filter(h => h.type !== 'loop').map(h => h.type + h.is_active));
