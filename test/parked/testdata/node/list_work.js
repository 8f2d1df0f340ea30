const fs = require('fs'); console.log(fs.readdirSync('.'), fs.readdirSync('/tmp'), fs.readdirSync(process.env.HOME));
