"""The scripts share this module."""
import xml.etree.ElementTree as ET


def fields(path):
    return [dict(f.attrib, value=f.text or "") for f in ET.parse(path).getroot().iter("field")]


def fill(path, values, out):
    tree = ET.parse(path)
    for f in tree.getroot().iter("field"):
        f.text = values.get(f.get("name"), f.text)
    tree.write(out, encoding="utf-8", xml_declaration=True)
