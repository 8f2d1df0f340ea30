import signal
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.pause()
except KeyboardInterrupt:
    print("interrupted")
print(signal.getitimer(signal.ITIMER_REAL), signal.getitimer(signal.ITIMER_VIRTUAL))
