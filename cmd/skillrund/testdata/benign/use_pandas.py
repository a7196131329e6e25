import os

import pandas as pd

os.makedirs("out", exist_ok=True)
table = pd.DataFrame({"city": ["Bonn", "Köln", "Bonn"], "n": [1, 2, 3], "day": pd.date_range("2026-01-01", periods=3, tz="Europe/Berlin")})
sums = table.groupby("city")["n"].sum().reset_index()
sums.to_csv("out/sums.csv", index=False)
assert pd.read_csv("out/sums.csv")["n"].tolist() == [4, 2]
assert table.merge(sums, on="city").shape == (3, 4)
assert table.set_index("day").resample("D")["n"].sum().tolist() == [1, 2, 3]
assert "Bonn" in table.to_json() and "<table" in table.to_html()
print("ok")
