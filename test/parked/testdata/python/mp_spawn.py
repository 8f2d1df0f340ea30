import multiprocessing as mp
print("imported as", __name__, __file__)
def work(q): q.put(("child", __name__, mp.current_process().name))
if __name__ == "__main__":
    mp.set_start_method("spawn")
    q = mp.Queue()
    p = mp.Process(target=work, args=(q,))
    p.start(); got = q.get(); p.join(); print(got); print(p.exitcode)
