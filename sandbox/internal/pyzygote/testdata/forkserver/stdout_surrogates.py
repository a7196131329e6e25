import sys
sys.stdout.write("\udcff\n")
sys.stderr.write("\udcff \ud800\n")
sys.stdout.write("\ud800")
