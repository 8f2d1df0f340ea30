import multiprocessing as mp
def work(): print("served", __name__, flush=True)
if __name__ == "__main__":
    c = mp.get_context("forkserver")
    p = c.Process(target=work)
    p.start(); p.join(); print(p.exitcode)
