raise ExceptionGroup("several", [ValueError(1), ExceptionGroup("more", [TypeError("t"), KeyError("k")])])
