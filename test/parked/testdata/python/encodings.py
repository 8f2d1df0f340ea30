import sys, locale, os
print(sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), locale.getpreferredencoding(), locale.setlocale(locale.LC_ALL), sys.flags.utf8_mode)
print(os.fsencode("ü\udcff"), locale.getlocale())
