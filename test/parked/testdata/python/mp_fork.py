import multiprocessing as mp
def work(n): return n * n
if __name__ == "__main__":
    mp.set_start_method("fork")
    with mp.Pool(2) as p: print(p.map(work, range(5)))
