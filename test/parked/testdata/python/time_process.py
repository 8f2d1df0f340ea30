import time, resource, datetime
print(time.process_time() < 1, resource.getrusage(resource.RUSAGE_SELF).ru_utime < 1)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)
print(time.tzname, time.timezone, time.get_clock_info("monotonic"))
