exec(compile("def g():\n    raise ValueError('inside')\ng()\n", "<made>", "exec"))
