process.emitWarning('careful', 'Own', 'C1'); new Buffer(3); console.log('on');
