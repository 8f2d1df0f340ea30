import signal
for s in sorted(signal.valid_signals()):
    print(int(s), signal.getsignal(s))
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
