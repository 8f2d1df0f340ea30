console.log('before'); return; console.log('never');
