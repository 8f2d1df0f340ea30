console.log(Object.keys(process.memoryUsage()), process.memoryUsage().rss > 1e6, require('v8').getHeapStatistics().heap_size_limit);
