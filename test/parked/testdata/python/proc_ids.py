import os
print(os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0), os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups(), os.getresuid(), os.getresgid())
print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getaffinity(0) == set(range(os.cpu_count())))
