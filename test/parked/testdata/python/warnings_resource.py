import sys
print(sys.dont_write_bytecode, sys.flags.dont_write_bytecode, sys.flags.unbuffered if hasattr(sys.flags, "unbuffered") else None, sys.flags.dev_mode)
open("/etc/passwd")
import gc; gc.collect()
