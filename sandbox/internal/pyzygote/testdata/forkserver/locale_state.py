import locale, os, time
print(locale.setlocale(locale.LC_ALL), locale.getlocale(), time.tzname, os.device_encoding(0))
