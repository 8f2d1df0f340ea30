import sys
def hook(kind, value, tb):
    print("hook", kind.__name__, value, tb.tb_lineno, tb.tb_frame.f_code.co_filename)
sys.excepthook = hook
1 / 0
