if True:
        print("spaces")
	print("a tab")
