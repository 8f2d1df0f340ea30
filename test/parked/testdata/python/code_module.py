import code, sys
code.InteractiveInterpreter().runsource("print('inner', __name__)")
code.interact(banner="b", exitmsg="e")
