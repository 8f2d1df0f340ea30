console.log(Math.random() < 1, require('crypto').randomUUID().length, require('crypto').createHash('md5').update('x').digest('hex'));
