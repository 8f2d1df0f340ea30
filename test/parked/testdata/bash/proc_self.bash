tr '\0' ' ' </proc/$$/cmdline; cat /proc/$$/comm; readlink /proc/$$/exe /proc/$$/cwd /proc/$$/root; cat /proc/$$/oom_score_adj /proc/$$/cgroup /proc/$$/limits
