class Own(BaseException):
    def __str__(self): return "mine"
raise Own
