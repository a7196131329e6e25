import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from helpers.check import inside

source, target = Path(sys.argv[1]), Path(sys.argv[2])
with zipfile.ZipFile(source) as z:
    for name in z.namelist():
        inside(name)
    z.extractall(target)
print(f"Unpacked {source} to {target} ({len(list(target.rglob('*.xml')))} XML files)")
