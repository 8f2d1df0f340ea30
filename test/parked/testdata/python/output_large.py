for i in range(30000): print("line", i)
