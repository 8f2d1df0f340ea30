import pickle
class Thing:
    def __init__(self): self.a = 1
b = pickle.dumps(Thing())
print(b, pickle.loads(b).a)
