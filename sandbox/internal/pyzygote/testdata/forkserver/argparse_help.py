# args: --help
import argparse
p = argparse.ArgumentParser(description="d")
p.add_argument("--n", type=int)
p.parse_args()
