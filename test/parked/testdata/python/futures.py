from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
def double(x): return 2 * x
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as e: print(list(e.map(double, range(4))))
    with ThreadPoolExecutor(2) as e: print(list(e.map(double, range(4))))
