import argparse
import html
import json
import pathlib

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("-o", "--output", required=True)
args = parser.parse_args()

style = (pathlib.Path(__file__).parent.parent / "assets/style.css").read_text()
data = json.loads(pathlib.Path(args.data).read_text(encoding="utf-8"))
rows = "".join(f"<tr><td>{html.escape(k)}</td><td>{v}</td></tr>" for k, v in data["results"].items())
page = f"<!DOCTYPE html><html><head><style>{style}</style></head><body><h1>{html.escape(data['title'])}</h1><table>{rows}</table></body></html>"
pathlib.Path(args.output).write_text(page, encoding="utf-8")
print("Report:", pathlib.Path(args.output).resolve())
