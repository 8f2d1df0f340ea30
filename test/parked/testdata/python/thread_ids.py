import threading, os
t = threading.main_thread()
print(t.native_id == os.getpid(), t.name, t.daemon, threading.get_native_id() == os.getpid())
print(os.listdir("/proc/self/task") == [str(os.getpid())], threading.stack_size())
