console.log(process.pid, process.ppid, process.getuid(), process.getgid(), process.getgroups(), process.umask(), process.cwd(), process.arch, process.platform);
