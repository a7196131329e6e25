import sys
print(sys.flags, sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix, sys.version, sys.platlibdir)
print(sys._xoptions, sys.warnoptions, sys.dont_write_bytecode, sys.pycache_prefix)
print(sys.getswitchinterval(), sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
