eval('let x = = 1');
