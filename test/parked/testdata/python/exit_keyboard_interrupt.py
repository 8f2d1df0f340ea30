raise KeyboardInterrupt("by itself")
