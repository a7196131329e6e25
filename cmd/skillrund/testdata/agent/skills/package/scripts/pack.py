import argparse
import zipfile
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("directory", type=Path)
parser.add_argument("output", type=Path)
parser.add_argument("--original", type=Path, help="check that every member of this one is there")
args = parser.parse_args()

files = sorted(p for p in args.directory.rglob("*") if p.is_file())
names = [p.relative_to(args.directory).as_posix() for p in files]
if args.original:
    missing = set(zipfile.ZipFile(args.original).namelist()) - set(names)
    if missing:
        raise SystemExit(f"Error: missing {', '.join(sorted(missing))}")
with zipfile.ZipFile(args.output, "w", zipfile.ZIP_DEFLATED) as z:
    for path, name in zip(files, names):
        z.write(path, name)
print(f"Packed {len(names)} files to {args.output}")
