import pydoc
import __main__
print(pydoc.plain(pydoc.render_doc(__main__)))
