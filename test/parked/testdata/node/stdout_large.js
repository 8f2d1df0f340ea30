process.stdout.write('x'.repeat(79) + '\n'.repeat(1)); process.stdout.write('line\n'.repeat(60000)); process.exitCode = 2;
