# env: PYTHONUNBUFFERED=
import os, sys
print("lost")
os.close(1)
