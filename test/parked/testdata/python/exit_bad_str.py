class Bad(Exception):
    def __str__(self): raise TypeError("no text")
raise Bad()
