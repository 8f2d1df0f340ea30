eval("(lambda: undefined_name)()")
