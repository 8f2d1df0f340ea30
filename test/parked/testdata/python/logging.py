import logging
logging.warning("through the root")
logging.basicConfig(format="%(filename)s %(lineno)d %(funcName)s %(module)s %(pathname)s %(processName)s %(message)s", force=True)
logging.error("with places")
