import multiprocessing as mp
def work(): raise ValueError("in the child")
if __name__ == "__main__":
    mp.set_start_method("spawn")
    p = mp.Process(target=work)
    p.start(); p.join(); print(p.exitcode)
