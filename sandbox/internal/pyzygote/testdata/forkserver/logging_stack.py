import logging
logging.basicConfig(format="%(levelname)s %(pathname)s:%(lineno)d %(funcName)s %(processName)s %(threadName)s %(message)s")
logging.warning("w")
logging.error("stack", stack_info=True)
