grep -E '^(Name|Umask|Uid|Gid|Groups|NSpid|FDSize|Threads|Sig|Shd|Cap|NoNewPrivs|Seccomp)' /proc/$$/status
