import warnings
warnings.simplefilter("always")
open("/dev/null")
print("end")
