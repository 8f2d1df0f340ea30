require('./nothing-here');
